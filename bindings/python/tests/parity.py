"""What the programs have in common whose parts `test_parity` runs over grpcio and over this package."""

OWN_METADATA = {"user-agent", "grpc-accept-encoding", "accept-encoding"}  # of a transport


class Parts(dict):
    """The parts of a program, by name: a decorator."""

    def __call__(self, function):
        self[function.__name__] = function
        return function


def metadata(found):
    """Metadata without what a transport adds, in an order of its own."""
    return found and sorted((key, value) for key, value in found if key not in OWN_METADATA)
