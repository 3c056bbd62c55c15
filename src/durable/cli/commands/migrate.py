"""`durable migrate`: migrates the authority's databases to this release's schema."""

from durable.authority.migrations import head_revision, upgrade_all
from durable.cli.connections import current_user
from durable.cli.input.options import AsJson, StateDir, load_settings
from durable.cli.render.output import (
    error_object,
    fail,
    missing_object,
    note_missing,
    print_json,
    results,
)


def migrate(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Migrate every database to this release's schema; safe to repeat."""
    settings = load_settings(state_dir)
    home = settings.require_database_url()
    count, missing = upgrade_all(home, settings.known_regional_urls(), current_user())
    failure = f"The database of {', '.join(missing)} was not migrated." if missing else None
    note_missing(missing)
    if as_json:
        content = {"revision": head_revision(), "databases": count, **missing_object(missing)}
        print_json({**content, **error_object("authority", failure)})
    else:
        subject = f"{count} databases are" if count > 1 else "The database is"
        results.print(f"{subject} at revision {head_revision()}.")
    if failure is not None:
        fail(failure)
