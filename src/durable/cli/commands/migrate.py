"""`durable migrate`: migrates the authority's databases to this release's schema."""

from durable.authority.migrations import head_revision, upgrade_all
from durable.cli.input.options import AsJson, StateDir, load_settings
from durable.cli.render.output import print_json, results


def migrate(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Migrate every database to this release's schema; safe to repeat."""
    settings = load_settings(state_dir)
    home = settings.require_database_url()
    count = upgrade_all(home, settings.regional_database_urls.values())
    if as_json:
        print_json({"revision": head_revision(), "databases": count})
    else:
        subject = f"{count} databases are" if count > 1 else "The database is"
        results.print(f"{subject} at revision {head_revision()}.")
