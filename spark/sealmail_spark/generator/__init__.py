"""Makes realistic stores of any size, with seeded faults of each kind and the list of them."""
