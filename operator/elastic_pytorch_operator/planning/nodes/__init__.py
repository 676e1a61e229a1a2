"""What speaks against nodes, which nodes new pods keep away from, and which workers leave theirs."""
