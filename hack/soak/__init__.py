"""Makes random faults to jobs of all sorts on the kind cluster, and checks the promises."""
