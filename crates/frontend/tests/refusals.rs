//! Programs that are refused: the code, the place, and the help of the message.

use crate::common::*;
use tessera_frontend::Capture;

const EXAMPLE_4: &str = "\
@ts.kernel.autotune(
    space=dict(
        BLOCK_M=[64, 128],
    )
)
def flash_attention(Q, K, V, is_causal: bool = True):
    \"\"\"Flash Attention with online softmax\"\"\"
    ctx = ts.tile.context()
    BM, BN = ctx.BLOCK_M, ctx.BLOCK_N
    smem_q = ts.tile.alloc_shared((BM, ctx.D), ts.bf16)
    smem_k = ts.tile.alloc_shared((BN, ctx.D), ts.bf16)
    smem_v = ts.tile.alloc_shared((BN, ctx.D), ts.bf16)
    acc = ts.tile.zeros((BM, ctx.D), ts.f32)
    m_i = ts.tile.full((BM,), -float('inf'), ts.f32)
    l_i = ts.tile.zeros((BM,), ts.f32)
    for q_block in ts.tile.range(0, ctx.S, BM):
        ts.tile.cp_async(smem_q, Q[q_block:q_block+BM])
        for kv_block in ts.tile.range(0, ctx.S, BN):
            ts.tile.cp_async(smem_k, K[kv_block:kv_block+BN])
            ts.tile.cp_async(smem_v, V[kv_block:kv_block+BN])
            ts.tile.barrier()
            scores = ts.tile.mma(smem_q, smem_k.T) * (1.0 / math.sqrt(ctx.D))
            if is_causal:
                scores = ts.tile.causal_mask(scores, q_block, kv_block)
            m_new = ts.tile.row_max(scores)
            m_i_new = ts.tile.maximum(m_i, m_new)
            alpha = ts.tile.exp(m_i - m_i_new)
            beta = ts.tile.exp(m_new - m_i_new)
            p = ts.tile.exp(scores - m_i_new)
            l_i = alpha * l_i + beta * ts.tile.row_sum(p)
            acc = alpha * acc + ts.tile.mma(p, smem_v)
            m_i = m_i_new
    return ts.tile.cast(acc / l_i[:, None], ts.bf16)
";

#[test]
fn printed_attention_is_refused_with_every_error() {
    let spec = "Q: B*H,S,D bf16; K: B*H,S,D bf16; V: B*H,S,D bf16; is_causal: const bool";
    let mut d = decl(
        EXAMPLE_4,
        spec,
        &[("BLOCK_M", 64), ("BLOCK_N", 64), ("num_warps", 4), ("num_stages", 2)],
    );
    d.params[3].default = Some(Capture::Bool(true));
    let errors = tessera_frontend::Kernel::new(d).err().expect("the printed form is refused");
    println!("{errors}");
    assert_eq!(
        codes(&errors),
        [
            "E_SHAPE_MISMATCH 17:34",
            "E_SHAPE_MISMATCH 19:38",
            "E_SHAPE_MISMATCH 20:38",
            "E_RAGGED 25:21",
            "E_SHAPE_MISMATCH 29:29",
            "E_SHAPE_MISMATCH 31:19",
            "E_TYPE 31:33",
            "E_GRAPH_INVALID 33:12",
        ]
    );
    let text = errors.render();
    for fix in [
        "Q[bh, q_block:q_block+BM, :]",
        "m_i_new[:, None]",
        "alpha[:, None]",
        "ts.tile.cast(p, ts.bf16)",
        "bounds_mask",
        "`O[bh, q0:q0 + BM, :] = …`",
    ] {
        assert!(text.contains(fix), "no `{fix}` in:\n{text}");
    }
}

/// The errors of a one-line-body kernel over `x: n f32; y: n f32; A: M,K bf16`.
fn errors_of(body: &str) -> String {
    let lines: String = body.lines().map(|l| format!("    {l}\n")).collect();
    let text = format!("def k(x, y, A, flag, a):\n{lines}");
    let spec = "x: n f32; y: n f32; A: M,K bf16; flag: const bool; a: f32";
    match kernel(&text, spec, &[("T", 16)]) {
        Ok(_) => "accepted".into(),
        Err(d) => d
            .errors()
            .map(|d| {
                let help = d.help.clone().map(|h| format!(" | {h}")).unwrap_or_default();
                format!("{} {}:{} {}{help}\n", d.code, d.loc.line(), d.loc.column(), d.message)
            })
            .collect(),
    }
}

#[track_caller]
fn refuses(body: &str, wanted: &[&str]) {
    let got = errors_of(body);
    for w in wanted {
        assert!(got.contains(w), "expected {w:?} in:\n{got}");
    }
    for line in got.lines() {
        assert!(line.contains(" | ") || is_excused(line), "no fix in:\n{line}\n{body}");
    }
}

#[track_caller]
fn accepts(body: &str) {
    assert_eq!(errors_of(body), "accepted", "{body}");
}

#[test]
fn names_are_checked_with_a_suggestion() {
    refuses("i = ts.tile.linear_id()\ny[i] = x[j]", &["E_NAME 3:14 `j` is not defined here"]);
    refuses("value = x[0]\ny[0] = vlaue", &["E_NAME 3:12", "did you mean `value`?"]);
    refuses(
        "y[0] = ts.tile.expp(x[0])",
        &["E_NAME", "ts.tile.expp", "did you mean `ts.tile.exp`?"],
    );
    refuses("t = ts.tile.context()\ny[0] = t.Q", &["E_NAME", "the context has no `Q`", "T"]);
}

#[test]
fn kinds_do_not_mix() {
    refuses(
        "i = ts.tile.linear_id()\nt = ts.tile.zeros((4,), ts.f32)",
        &["E_STYLE_MIX 3:9 expected no tile operation in a lane kernel, got `ts.tile.zeros`"],
    );
    refuses("i = ts.tile.linear_id()\ny[i:i+4] = 0.0", &["E_STYLE_MIX"]);
}

#[test]
fn conditions_are_scalars() {
    refuses(
        "t = x[0:16]\nif t > 0.0:\n    y[0] = 1.0",
        &["E_TYPE 3:8 expected a scalar condition", "ts.tile.where"],
    );
    refuses(
        "t = x[0:16]\ny[0:16] = t if t > 0.0 else 0.0",
        &["E_TYPE", "expected a scalar condition"],
    );
}

#[test]
fn variables_need_a_value_on_every_path() {
    refuses(
        "if a > 0.0:\n    v = 1.0\ny[0] = v",
        &["E_NAME 4:12 `v` is assigned on some paths only"],
    );
    accepts("if a > 0.0:\n    v = 1.0\nelse:\n    v = 2.0\ny[0] = v");
    refuses("for i in range(4):\n    v = 1.0\ny[0] = v", &["E_NAME 4:12"]);
    accepts("if flag:\n    v = 1.0\nelse:\n    v = 2.0\ny[0] = v");
}

#[test]
fn slices_have_compile_time_extents() {
    refuses(
        "m = ts.tile.program_id(0)\ny[m:m+m] = 0.0",
        &["E_DYNAMIC_EXTENT", "got `m` to `m+m`", "start : start + T"],
    );
    accepts("y[4:4] = 0.0");
    refuses("y[4:3] = 0.0", &["E_SHAPE_MISMATCH", "ends at its start or after it"]);
    refuses(
        "y[0, 1] = 0.0",
        &["E_SHAPE_MISMATCH", "expected at most 1 indices for `y` of shape (n,), got 2"],
    );
}

#[test]
fn shapes_and_dtypes_are_checked() {
    refuses("y[0:16] = x[0:8]", &["E_SHAPE_MISMATCH", "(16,)"]);
    refuses("t = x[0:16] + x[0:8]", &["E_SHAPE_MISMATCH"]);
    refuses(
        "t = A[0:16, 0:16]\nv = x[0:16]\ny[0:16] = ts.tile.row_sum(t * v)",
        &["E_SHAPE_MISMATCH", "write `v[:, None]`"],
    );
    refuses(
        "p = ts.tile.zeros((16, 16), ts.f32)\nq = ts.tile.mma(p, A[0:16, 0:16])",
        &["E_TYPE", "ts.tile.cast(p, ts.bf16)"],
    );
    refuses("q = ts.tile.mma(A[0:16, 0:16], A[0:8, 0:16])", &["E_SHAPE_MISMATCH", "16 is not 8"]);
    refuses("y[0] = \"a\"", &["E_TYPE", "expected a number or a tile, got the string \"a\""]);
}

#[test]
fn loops_keep_types_and_literals_give_way() {
    accepts("s = 0\nfor i in range(4):\n    s = s + x[i]\ny[0] = s");
    accepts("c = 0\nfor i in range(4):\n    c += 1\ny[0] = c");
    refuses(
        "t = ts.tile.zeros((4,), ts.f32)\nfor i in range(4):\n    t = ts.tile.zeros((8,), ts.f32)",
        &["E_TYPE", "expected `t` to keep its type in the loop"],
    );
    refuses("for i in x:\n    y[0] = 0.0", &["E_SYNTAX"]);
    refuses("for i in range(0, 4, 0):\n    y[0] = 0.0", &["E_ARGUMENT", "a step other than 0"]);
}

#[test]
fn leaving_early_is_structured() {
    accepts("if a > 0.0:\n    return y\ny[0] = 1.0\nreturn y");
    accepts("for i in range(8):\n    if x[i] > a:\n        break\n    y[i] = 1.0");
    accepts("for i in range(8):\n    if x[i] > a:\n        continue\n    y[i] = 1.0");
    accepts("i = 0\nwhile i < 8:\n    if x[i] > a:\n        return\n    y[i] = 1.0\n    i += 1");
    refuses("break", &["E_SYNTAX", "inside a loop"]);
    refuses("return x[0:4]", &["E_GRAPH_INVALID", "return its parameters only"]);
}

#[test]
fn privileges_are_checked() {
    let text = "def k(x, y):\n    y[0] = x[0]\n";
    let errors = kernel(text, "x: n f32 read; y: n f32 read", &[]).err().expect("refused");
    assert_eq!(codes(&errors), ["E_PRIVILEGE 2:5"]);
    let errors = kernel("def k(x):\n    x[0] += 1.0\n    x[1] = 0.0\n", "x: n f32 reduce_sum", &[])
        .err()
        .expect("refused");
    assert_eq!(codes(&errors), ["E_PRIVILEGE 3:5"]);
}

#[test]
fn python_outside_the_language_is_named() {
    refuses("with a:\n    pass", &["E_SYNTAX", "`with` is not part of the kernel language"]);
    refuses("z = [i for i in range(3)]", &["E_SYNTAX", "a comprehension"]);
    refuses("z = lambda q: q", &["E_SYNTAX", "`lambda`"]);
    refuses("import os", &["E_SYNTAX", "`import`"]);
    refuses("y[0] = x @ x", &["E_UNSUPPORTED", "ts.tile.mma"]);
    refuses("y[0] = ts.tile.fence()", &["E_UNSUPPORTED", "reserved"]);
}

#[test]
fn invalid_source_is_reported_at_its_place() {
    let errors = kernel("def k(x):\n    y = = 1\n", "x: n f32", &[]).err().expect("refused");
    assert_eq!(codes(&errors), ["E_SYNTAX 2:9"]);
    let errors = kernel("x = 1\n", "x: n f32", &[]).err().expect("refused");
    assert!(errors.render().contains("expected the source of a function"));
}

#[test]
fn several_errors_are_reported_together_and_none_twice() {
    let got = errors_of("u = nope1\ny[0] = u + u\ny[1] = nope2\nv = u * 2.0");
    assert_eq!(got.lines().count(), 2, "{got}");
}

#[test]
fn errors_in_inlined_functions_show_the_call() {
    let helper = source("def twice(v):\n    return v * undefined_name\n", &[]);
    let text = "def k(x, y):\n    y[0] = twice(x[0])\n";
    let mut d = decl(text, "x: n f32; y: n f32", &[]);
    d.source = source(text, &[("twice", Capture::Func(helper))]);
    let errors = tessera_frontend::Kernel::new(d).err().expect("refused");
    let shown = errors.render();
    assert!(shown.contains("kernel.py:2:16 in `twice`"), "{shown}");
    assert!(shown.contains("`twice` is called here"), "{shown}");
}

#[test]
fn indented_sources_keep_their_columns() {
    let text = "    @ts.kernel\n    def k(x):\n        x[0] = nope\n";
    let errors = kernel(text, "x: n f32", &[]).err().expect("refused");
    assert_eq!(codes(&errors), ["E_NAME 3:16"]);
}

#[test]
fn scans_and_arguments_of_reductions_are_checked() {
    refuses(
        "t = A[0:16, 0:16]\nu = ts.tile.cumsum(t)",
        &["E_ARGUMENT", "expected `axis=` for a scan of a tile of rank 2"],
    );
    refuses("u = ts.tile.scan(x[0:16], \"mean\")", &["E_ARGUMENT", "\"sum\" \"max\" \"min\""]);
    refuses(
        "u = ts.tile.cumsum(x[0:16], exclusive=a)",
        &["E_ARGUMENT", "expected `exclusive` to be True or False"],
    );
    refuses("y[0] = ts.tile.argmax(a)", &["E_TYPE", "expected a tile to reduce"]);
    refuses("y[0] = ts.tile.argmax(x[0:16])", &["E_RAGGED 2:12", "an argmax along axis 0"]);
    refuses("t = x[0:16] + 1.0\ny[0:16] = ts.tile.cumsum(t)", &["E_RAGGED 3:15", "bounds_mask"]);
    accepts("y[0:16] = ts.tile.cumsum(x[0:16])");
}

#[test]
fn atomics_are_checked() {
    refuses(
        "ts.tile.atomic_add(x[0], 1.0, order=\"sometimes\")",
        &[
            "E_ARGUMENT 2:41",
            "\"relaxed\" \"acquire\" \"release\" \"acq_rel\" \"seq_cst\", got \"sometimes\"",
        ],
    );
    refuses(
        "ts.tile.atomic_add(x[0], 1.0, scope=\"world\")",
        &["E_ARGUMENT", "\"thread\" \"warp\" \"block\" \"cluster\" \"device\" \"mesh\""],
    );
    refuses("ts.tile.atomic_add(x[0], 1.0, scope=\"cluster\")", &["E_UNSUPPORTED", "reserved"]);
    refuses("ts.tile.atomic_add(x, 1.0)", &["E_TYPE 2:24", "ts.tile.atomic_add(t[i], v)"]);
    refuses("ts.tile.atomic_add(x[0:4], 1.0)", &["E_UNSUPPORTED", "ts.tile.arange(n)"]);
    refuses(
        "ts.tile.atomic_xor(x[0], 1)",
        &["E_TYPE", "expected elements that an atomic xor combines, got f32"],
    );
    let refused = |text: &str, spec: &str| codes(&kernel(text, spec, &[]).err().expect("refused"));
    assert_eq!(
        refused("def k(x):\n    ts.tile.atomic_add(x[0], 1.0)\n", "x: n f32 read"),
        ["E_PRIVILEGE 2:5"]
    );
    assert_eq!(
        refused("def k(x):\n    ts.tile.atomic_max(x[0], 1.0)\n", "x: n f32 reduce_sum"),
        ["E_PRIVILEGE 2:5"]
    );
    assert_eq!(
        refused(
            "def k(x, y):\n    y[0] = ts.tile.atomic_add(x[0], 1.0)\n",
            "x: n f32 reduce_sum; y: n f32"
        ),
        ["E_PRIVILEGE 2:12"]
    );
    // Adding at the same positions from every group is a race, unless the parameter is a sum.
    let scatter = "def k(x):\n    p = ts.tile.grid(8)\n    x[ts.tile.arange(4)] += 1.0\n";
    assert_eq!(refused(scatter, "x: n f32"), ["E_RACE 3:5"]);
    assert!(kernel(scatter, "x: n f32 reduce_sum", &[]).is_ok());
}

#[test]
fn lane_groups_are_checked() {
    refuses(
        "i = ts.tile.linear_id()\nif i < 3:\n    y[i] = ts.tile.group.reduce(x[i], \"sum\")",
        &["E_DIVERGENT_BARRIER 4:16", "group operation"],
    );
    refuses(
        "i = ts.tile.linear_id()\ny[i] = ts.tile.group.broadcast(x[i], i)",
        &["E_ARGUMENT 3:12", "ts.tile.group.shuffle(x, src)"],
    );
    refuses(
        "i = ts.tile.linear_id()\ny[i] = ts.tile.group.reduce(x[i], \"mean\")",
        &["E_ARGUMENT"],
    );
    refuses("g = ts.tile.group\ny[g.rank] = g.width", &["E_NAME"]);
    refuses("g = ts.tile.group\nt = ts.tile.zeros((4,), ts.f32)", &["E_STYLE_MIX 3:9"]);
}

#[test]
fn dropout_and_waits_are_checked() {
    refuses("y[0:4] = ts.tile.dropout(x[0:4], 1.5, 0)", &["E_ARGUMENT", "from 0 to 1, got 1.5"]);
    refuses(
        "t = A[0:16, 0:16]\nu = ts.tile.dropout(t, 0.1, 0, at=(1, 2))",
        &["E_ARGUMENT", "shape=(M, N)"],
    );
    refuses(
        "t = A[0:16, 0:16]\nu = ts.tile.dropout(t, 0.1, 0, at=3, shape=(M, K))",
        &["E_ARGUMENT", "2 integers"],
    );
    refuses("u = ts.tile.philox(0, a)", &["E_TYPE", "a counter of integers"]);
    refuses("ts.tile.cp_wait_group(a)", &["E_ARGUMENT", "compile-time integer of 0 or more"]);
    refuses("assert x[0:4] > 0.0", &["E_TYPE", "ts.tile.all(c)"]);
    refuses("assert a > 0.0, a", &["E_TYPE", "expected a string to tell"]);
    accepts("ts.tile.print(\"x\", x[0:4], a, T)\nprint(a)".replace("T", "3").as_str());
}

#[test]
fn steps_hints_and_subscripts_are_checked() {
    refuses("t = x[0:16:0]", &["E_ARGUMENT", "positive compile-time integer, got the integer 0"]);
    refuses("t = x[16:0:-1]", &["E_ARGUMENT", "ts.tile.arange(n)"]);
    refuses("t = x[tile_i:tile_i+4:2]", &["E_UNSUPPORTED", "without a step"]);
    refuses("y[0:4] = x[0:8:3]", &["E_SHAPE_MISMATCH", "(4,)"]);
    refuses("t = A[..., ...]", &["E_SYNTAX", "`...` once"]);
    refuses(
        "t = ts.tile.load(x, (0,), inbounds=a)",
        &["E_ARGUMENT", "expected `inbounds` to be True or False"],
    );
    refuses("t = A.T + 1.0", &["E_TYPE", "the transposed parameter `A`"]);
    refuses("i = ts.tile.linear_id()\ny[0:8:2] = 0.0", &["E_STYLE_MIX"]);
}

#[test]
fn reduction_parameters_take_their_own_operator_only() {
    let refused = |body: &str, spec: &str| {
        let text = format!("def k(x):\n    {body}\n");
        codes(&kernel(&text, spec, &[]).err().expect("refused"))
    };
    assert_eq!(refused("x[0] += 1.0", "x: n f32 reduce_max"), ["E_PRIVILEGE 2:5"]);
    assert_eq!(refused("x[0] = 1.0", "x: n f32 reduce_sum"), ["E_PRIVILEGE 2:5"]);
    assert_eq!(
        refused("x[0] *= 2.0", "x: n f32 reduce_prod"),
        ["E_PRIVILEGE 2:5", "E_PRIVILEGE 2:5"]
    );
    assert_eq!(refused("x[0] += x[1]", "x: n f32 reduce_sum"), ["E_PRIVILEGE 2:13"]);
}

#[test]
fn a_name_is_not_both_a_parameter_and_a_dimension() {
    let text = "def k(x, n):\n    i = ts.tile.linear_id()\n    if i < n:\n        x[i] = 0.0\n";
    let errors = kernel(text, "x: n f32; n: i64", &[]).err().expect("refused");
    assert_eq!(codes(&errors), ["E_NAME 1:10"]);
    assert!(kernel(text, "x: m f32; n: i64", &[]).is_ok());
    assert!(kernel(text, "x: n f32; n: const int", &[]).is_ok());
}
