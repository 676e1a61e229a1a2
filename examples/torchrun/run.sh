#!/bin/sh
# A program that is no Python, run once for each process: here it says who it is, and hands over.
echo "run.sh: rank $RANK of $WORLD_SIZE"
exec python3 "$(dirname "$0")/train.py" "$@"
