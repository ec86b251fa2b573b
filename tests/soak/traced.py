"""``ldp-worker`` that writes where each of its threads is into its log, when SIGUSR2 asks for it."""

import faulthandler
import signal

if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    from worker import cli

    cli.main()
