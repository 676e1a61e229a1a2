"""Makes faults at random to jobs of all sorts on the kind cluster, and checks all the time that the promises are kept."""
