"""`python -m durable.cli`: the `durable` command of this very interpreter."""

from durable.cli.main import run

if __name__ == "__main__":
    run()
