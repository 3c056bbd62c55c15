"""`durable migrate`: brings the authority's databases to this release's schema."""

from durable.authority.migrations import head_revision, upgrade
from durable.cli.options import AsJson, StateDir, load_settings
from durable.cli.output import print_json, results


def migrate(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Migrate every database of the settings; again changes nothing."""
    settings = load_settings(state_dir)
    home = settings.require_database_url()
    urls = dict.fromkeys([home, *settings.regional_database_urls.values()])
    for url in urls:
        upgrade(url, serves_global=url == home)
    if as_json:
        print_json({"revision": head_revision(), "databases": len(urls)})
    else:
        several = f"{len(urls)} databases are" if len(urls) > 1 else "The database is"
        results.print(f"{several} at revision {head_revision()}.")
