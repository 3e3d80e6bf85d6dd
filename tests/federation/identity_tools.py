"""Studies whose parties are members of a federation."""

from roles_tools import Consortium

from eigenveil.federation.protocol.messages import HELPER


class Known(Consortium):
    """A consortium whose parties have identities."""

    def __init__(self, study, folder, identities):
        self.known = identities
        super().__init__(study, folder)
        if HELPER in self.parties:
            self.parties[HELPER]._identity = identities[HELPER]

    def site(self, name):
        made = super().site(name)
        made._identity = self.known[name]
        return made
