"""``python -m crfkit``: the command line."""

from crfkit.cli import main

if __name__ == "__main__":
    main()
