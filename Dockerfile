# An image with PyTorch and the emulated device `neuron`:
#   docker build -t torchneuron . && docker run --rm -it torchneuron
FROM python:3.11-slim-bookworm

RUN apt-get update \
  && apt-get install -y --no-install-recommends g++ git make \
  && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/torchneuron
COPY . .
RUN pip install torch==2.13.0 "setuptools>=77.0.3" wheel ninja numpy jaxlib==0.10.2
RUN pip install --no-build-isolation .

WORKDIR /root
CMD ["torchneuron", "doctor"]
