"""``python -m verifylab``: the command line."""

from verifylab.cli import main

if __name__ == "__main__":
    main(prog_name="verifylab")
