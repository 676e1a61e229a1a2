"""The group of a job whose rendezvous is one of torch's own."""
