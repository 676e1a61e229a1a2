"""The authority that agents trust, and the certificate that the operator shows."""
