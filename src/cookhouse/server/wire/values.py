"""Count of the values in a JSON text, before they are made: two brackets are two bytes, and a list hundreds."""

from cookhouse.server.refusals import TooLargeError

_MAX_CONTAINERS = 2**16
_MAX_VALUES = 2**20


class ValueCounter:
    """Counts lists and objects, and values by the commas between them, outside of texts."""

    def __init__(self) -> None:
        self._num_containers = 0
        self._num_values = 0
        self._is_in_text = False
        self._rest = b""
        """The backslash that the last bytes ended with: what follows is not what it seems."""

    def feed(self, data: bytes) -> None:
        """Take more bytes.

        Raises:
            TooLargeError: there are too many.
        """
        data = self._rest + data
        self._rest = b""
        if b"\\" in data:
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
            if data.endswith(b"\\"):
                data, self._rest = data[:-1], b"\\"
        if self._is_in_text or b'"' in data:
            parts = data.split(b'"')
            outside = b"".join(parts[self._is_in_text :: 2])
            self._is_in_text ^= len(parts) % 2 == 0
        else:
            outside = data
        self._num_containers += outside.count(b"[") + outside.count(b"{")
        self._num_values += outside.count(b",")
        for what, number, most in (
            ("lists and objects", self._num_containers, _MAX_CONTAINERS),
            ("values", self._num_values, _MAX_VALUES),
        ):
            if number > most:
                raise TooLargeError(f"the request has more than {most} {what}; send less at a time")
