"""What people see. Pure: facts in, text out; nothing here asks a cluster or the clock."""
