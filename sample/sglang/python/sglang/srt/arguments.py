"""Server arguments."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerArguments:
    """What a server is started with."""

    model: str
    tp_size: int = 1

    def command(self) -> list[str]:
        """The arguments as a command line."""
        return ["--model", self.model, "--tp-size", str(self.tp_size)]
