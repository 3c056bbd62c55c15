"""`python -m durable.cli`: the `durable` command, run by this interpreter."""

from durable.cli.main import run

if __name__ == "__main__":
    run()
