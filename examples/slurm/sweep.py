"""One member of a sweep: fits a line by gradient descent, with the member's learning rate."""

import os

RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 1.5)

rate = RATES[int(os.environ["CASTOFF_ARRAY_INDEX"])]
slope = 0.0
for _ in range(100):
    gradient = sum(2 * x * (slope * x - 3 * x) for x in (-1.0, -0.5, 0.5, 1.0)) / 4
    slope -= rate * gradient
print(f"rate {rate}: slope {slope:.3f} of 3")
