"""The elastic agent: process 1 of a worker pod."""
