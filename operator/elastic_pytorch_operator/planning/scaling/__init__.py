"""What each worker adds to the speed of the training, and how many workers are worth their cost."""
