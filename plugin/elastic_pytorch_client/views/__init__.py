"""What people see. Pure: nothing here asks a cluster or the clock."""
