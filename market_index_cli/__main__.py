"""Entry point of `market-index` and of `python -m market_index_cli`.

It imports only modules that Python has loaded at its start. So Ctrl-C during any later import has no traceback.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` without its imports, which take longer than Python
import os
import sys


def run() -> None:
    """Run the command. Without click, name the extra that installs it and exit with 2."""
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        # Ctrl-C during the imports ends the process, without a traceback. Then click handles it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_closed_streams()
    try:
        from market_index_cli.errors import require_whole_output  # noqa: PLC0415  # it needs click, as main does
        from market_index_cli.main import main  # noqa: PLC0415  # click is an extra: report it if it is missing
    except ModuleNotFoundError as missing:
        if missing.name != "click":
            raise
        from market_index.errors import missing_extra  # noqa: PLC0415  # not before Ctrl-C is handled

        user, extra = ("serve", "server") if sys.argv[1:2] == ["serve"] else ("market-index", "cli")
        sys.stderr.write(f"{missing_extra(user, extra, missing)}\n")
        sys.exit(2)
    require_whole_output()
    signal.signal(signal.SIGINT, interrupt)
    # Process 1 of a container ignores a signal without a handler. Commands that have more to end replace this one.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    main(prog_name="market-index")


def _open_closed_streams() -> None:
    """Open what a shell has closed (`2>&-`): otherwise the next file, such as a store, would get its descriptor.

    Messages on a closed standard error are lost. Reading a closed standard input or writing a closed standard output
    fails.
    """
    for descriptor, (name, flags) in enumerate(
        (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    ):
        if getattr(sys, name) is None:
            os.open(os.devnull, flags)  # it gets the lowest free descriptor
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", closefd=False))


# Worker processes import this module again, under another name.
if __name__ == "__main__":
    run()
