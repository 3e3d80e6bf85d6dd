"""Parties with certificates of a registrar, and studies among them."""

from roles_tools import Consortium

from eigenveil.federation.protocol.messages import HELPER
from registrar_tools import DAY, NOW, Registrar

__all__ = ["DAY", "NOW", "Known", "Registrar"]


class Known(Consortium):
    """A consortium whose parties have identities."""

    def __init__(self, study, folder, identities):
        self.identities = identities
        super().__init__(study, folder)
        if HELPER in self.parties:
            self.parties[HELPER]._identity = identities[HELPER]

    def site(self, name):
        made = super().site(name)
        made._identity = self.identities[name]
        return made
