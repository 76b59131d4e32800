"""Matrix products."""

from .case import Case, w, x


def gemm(name, a, b, c=None, opset=13, **attributes):
    inputs = [x(*a), w(*b)] + ([] if c is None else [w(*c)])
    return Case("Gemm", name, opset, inputs, attributes)


def matmul(name, a, b, opset=13, weight=True):
    return Case("MatMul", name, opset, [x(*a), w(*b) if weight else x(*b)])


CASES = [
    gemm("plain", (3, 4), (4, 5), (5,)),
    gemm("plain", (3, 4), (4, 5), (3, 5), opset=7),
    gemm("no_c", (3, 4), (4, 5)),
    gemm("trans_b", (3, 4), (5, 4), (5,), transB=1),
    gemm("trans_b", (3, 4), (5, 4), (5,), opset=9, transB=1),
    gemm("trans_a", (4, 3), (4, 5), (5,), transA=1),
    gemm("trans_a_trans_b", (4, 3), (5, 4), (5,), transA=1, transB=1),
    gemm("alpha_beta", (3, 4), (5, 4), (5,), transB=1, alpha=0.5, beta=-1.5),
    gemm("beta_0", (3, 4), (4, 5), (5,), beta=0.0),
    gemm("alpha_no_c", (3, 4), (4, 5), alpha=2.5),
    gemm("c_scalar", (3, 4), (4, 5), ()),
    gemm("c_one_element", (3, 4), (4, 5), (1,)),
    gemm("c_row", (3, 4), (4, 5), (1, 5)),
    gemm("c_column", (3, 4), (4, 5), (3, 1)),
    gemm("c_full_trans", (4, 3), (5, 4), (3, 5), transA=1, transB=1, alpha=1.25, beta=0.75),
    gemm("one_row", (1, 19), (11, 19), (11,), transB=1),
    gemm("one_output", (5, 7), (1, 7), (1,), transB=1),
    gemm("inner_1", (3, 1), (1, 4), (4,)),
    gemm("larger", (9, 33), (17, 33), (17,), transB=1),
    Case("Gemm", "both_computed", 13, [x(3, 4), x(4, 5), x(5)]),
    matmul("2d", (3, 4), (4, 5)),
    matmul("2d", (3, 4), (4, 5), opset=1),
    matmul("2d_computed", (3, 4), (4, 5), weight=False),
    matmul("1d_1d", (4,), (4,), weight=False),
    matmul("1d_2d", (4,), (4, 5)),
    matmul("2d_1d", (3, 4), (4,)),
    matmul("1d_3d", (4,), (2, 4, 3)),
    matmul("3d_1d", (2, 3, 4), (4,)),
    matmul("3d_2d", (2, 3, 4), (4, 5)),
    matmul("2d_3d", (3, 4), (2, 4, 5)),
    matmul("3d_3d", (2, 3, 4), (2, 4, 5), weight=False),
    matmul("4d_4d", (2, 3, 2, 4), (2, 3, 4, 3), weight=False),
    matmul("batch_broadcast", (2, 1, 3, 4), (3, 4, 2), weight=False),
    matmul("batch_broadcast_both", (2, 1, 3, 4), (1, 3, 4, 2), weight=False),
    matmul("4d_2d", (2, 2, 3, 4), (4, 5)),
    Case("Einsum", "attention_scores", 12, [x(2, 2, 2, 3, 4), x(2, 2, 2, 3, 4)], {"equation": "BGHID,BGHJD->BGHIJ"}),
    Case("Einsum", "attention_values", 12, [x(2, 2, 3, 3), x(2, 2, 3, 4)], {"equation": "bhij,bhjd->bhid"}),
    Case("Einsum", "matrix_product", 12, [x(3, 4), w(4, 5)], {"equation": "ij,jk->ik"}),
]
