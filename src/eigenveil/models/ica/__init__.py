"""Independent components: private ICA by fourth cumulants."""
