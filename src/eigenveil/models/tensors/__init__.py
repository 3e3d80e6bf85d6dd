"""What mixtures and topics have in common: whitening, tensors, options."""
