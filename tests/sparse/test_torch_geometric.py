"""torch-geometric without its compiled extensions, unmodified: forward and backward as on the CPU.

A graph is a list of edges, along which messages are gathered and scattered, or a sparse adjacency,
with which they are a product.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from behaviour.subject import DEVICE, ERRORS
from sparse.subject import assert_equal

geometric = pytest.importorskip("torch_geometric")
layers = pytest.importorskip("torch_geometric.nn")

pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR:UserWarning")

NODES, FEATURES, WIDTH = 12, 6, 4
SIZE = (NODES, NODES)

utils = geometric.utils
GRAPHS: dict[str, Callable[[Tensor], Tensor]] = {
    "edges": lambda edges: edges,
    "csr": lambda edges: utils.to_torch_csr_tensor(edges, size=SIZE),
    "coo": lambda edges: utils.to_torch_coo_tensor(edges, size=SIZE),
    "csc": lambda edges: utils.to_torch_csc_tensor(edges, size=SIZE),
}
# With GraphConv, GINConv and SAGEConv the CPU multiplies by a CSC adjacency; the others refuse it.
LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "GCNConv": lambda: layers.GCNConv(FEATURES, WIDTH),
    "SAGEConv": lambda: layers.SAGEConv(FEATURES, WIDTH),
    "SAGEConv max": lambda: layers.SAGEConv(FEATURES, WIDTH, aggr="max"),
    "GATConv": lambda: layers.GATConv(FEATURES, WIDTH, heads=2),
    "GATv2Conv": lambda: layers.GATv2Conv(FEATURES, WIDTH, heads=2),
    "TransformerConv": lambda: layers.TransformerConv(FEATURES, WIDTH, heads=2),
    "GraphConv": lambda: layers.GraphConv(FEATURES, WIDTH),
    "GINConv": lambda: layers.GINConv(torch.nn.Linear(FEATURES, WIDTH)),
    "TAGConv": lambda: layers.TAGConv(FEATURES, WIDTH),
    "GatedGraphConv": lambda: layers.GatedGraphConv(FEATURES, num_layers=2),
}


def edges() -> Tensor:
    """Return both directions of random edges, int64 [2, n]."""
    return utils.to_undirected(torch.randint(NODES, (2, 30)))


def learned(
    layer: Callable[[], torch.nn.Module], graph: Tensor, features: Tensor, device: str
) -> list[Any]:
    """Return what a layer makes of a graph, and all gradients."""
    torch.manual_seed(1)
    net = layer().to(device)
    x = features.to(device, copy=True).requires_grad_()
    out = net(x, graph.to(device))
    out.square().sum().backward()
    return [out.detach(), x.grad, *(parameter.grad for parameter in net.parameters())]


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_equal_the_cpus(layer: str, graph: str) -> None:
    given, features = GRAPHS[graph](edges()), torch.randn(NODES, FEATURES)
    try:
        expected = learned(LAYERS[layer], given, features, "cpu")
    except ERRORS as error:
        assert graph == "csc", "only a CSC adjacency is refused"
        with pytest.raises(type(error)):
            learned(LAYERS[layer], given, features, DEVICE)
        return
    assert_equal(learned(LAYERS[layer], given, features, DEVICE), expected)


def test_adjacencies_are_made_on_the_device() -> None:
    given = edges()
    for make in list(GRAPHS.values())[1:]:
        assert_equal(make(given.to(DEVICE)), make(given))


def test_its_own_tensor_of_edges() -> None:
    given, features = edges(), torch.randn(NODES, FEATURES)

    def run(device: str) -> list[Any]:
        index = geometric.EdgeIndex(given, sparse_size=SIZE).to(device).sort_by("row").values
        seen = learned(LAYERS["SAGEConv"], index, features, device)
        return [*seen, index @ features.to(device), index.as_tensor()]

    assert_equal(run(DEVICE), run("cpu"))


def test_a_batch_of_graphs_is_pooled() -> None:
    graphs = [
        geometric.data.Data(
            x=torch.randn(NODES + extra, FEATURES),
            edge_index=utils.to_undirected(torch.randint(NODES + extra, (2, 20))),
        )
        for extra in range(3)
    ]

    def run(device: str) -> list[Any]:
        torch.manual_seed(0)
        batch = geometric.data.Batch.from_data_list(graphs).to(device)
        net = layers.GraphSAGE(FEATURES, 8, num_layers=2, out_channels=WIDTH).to(device)
        norm, pool = layers.GraphNorm(WIDTH).to(device), layers.TopKPooling(WIDTH).to(device)
        nodes = norm(net(batch.x, batch.edge_index), batch.batch)
        kept = pool(nodes, batch.edge_index, None, batch.batch)
        pooled = [
            layers.global_mean_pool(nodes, batch.batch),
            layers.global_max_pool(nodes, batch.batch),
            layers.global_add_pool(kept[0], kept[3]),
        ]
        torch.stack(pooled).square().sum().backward()
        gradients = [parameter.grad for parameter in net.parameters()]
        return [*(each.detach() for each in pooled), kept[1], *gradients]

    assert_equal(run(DEVICE), run("cpu"))
