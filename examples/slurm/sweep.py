"""One member of a sweep: fits a line by gradient descent, with the learning rate of its command line."""

import sys

rate = float(sys.argv[1])
slope = 0.0
for _ in range(100):
    gradient = sum(2 * x * (slope * x - 3 * x) for x in (-1.0, -0.5, 0.5, 1.0)) / 4
    slope -= rate * gradient
print(f"rate {rate}: slope {slope:.3f} of 3")
