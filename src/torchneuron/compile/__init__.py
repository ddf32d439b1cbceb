"""`torch.compile(backend="neuron")`: from Dynamo's graphs to programs of the runtime."""
