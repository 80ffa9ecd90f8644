//! Contractions and convolutions. They are bilinear: the cotangent of each operand is the same kind
//! of op on the cotangent of the result and the other operand.
//!
//! Where the cotangent and the other operand have different dtypes, both are converted to the wider
//! one, which loses nothing; the result is stored in the dtype of the operand it belongs to.

use crate::emit::{Emit, Out, Outs, View, ints, is_empty};
use crate::rules::one;
use crate::scalar::Scalars;
use tessera_graph::dims::compute;
use tessera_graph::ops::shape::spread;
use tessera_graph::{Graph, GraphOp, extents};
use tessera_ir::{Attr, Dim, DimOp, OpSpec, Type, Value};
use tessera_numerics::DType;

pub fn jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let mut sum = None;
    for (place, &t) in t.iter().enumerate() {
        let Some(t) = t else { continue };
        let mut operands = v.operands.clone();
        operands[place] = t;
        let term = em.op(v.spec_on(&operands))?;
        sum = em.sum_of(sum, Some(term))?;
    }
    Ok(match sum {
        Some(sum) => {
            let ty = em.ty(v.result());
            one(em.retype(sum, &ty)?)
        }
        None => vec![None],
    })
}

/// Two factors in one dtype that holds both.
fn alike(em: &mut Emit, a: Value, b: Value) -> Result<(Value, Value), tessera_diag::Diagnostic> {
    let (x, y) = (em.dtype(a), em.dtype(b));
    if x == y {
        return Ok((a, b));
    }
    let wide = match x.bits().cmp(&y.bits()) {
        std::cmp::Ordering::Greater if x.bits() >= 32 => x,
        std::cmp::Ordering::Less if y.bits() >= 32 => y,
        _ => DType::F32,
    };
    Ok((em.cast_to(a, wide)?, em.cast_to(b, wide)?))
}

/// How sums are kept, where the op says so and the factors' dtype allows it.
fn sums(spec: OpSpec<Graph>, v: &View<'_>, factor: DType, out: DType) -> OpSpec<Graph> {
    let mut spec = match out == factor {
        true => spec,
        false => spec.attr("out", Attr::word(out.name())),
    };
    if let Some(accum) = DType::parse(v.word("accum"))
        && accum.bits() >= factor.bits()
    {
        spec = spec.attr("accum", Attr::word(accum.name()));
    }
    match v.word("class") {
        "" => spec,
        class => spec.attr("class", Attr::word(class)),
    }
}

fn free(rank: usize, batch: &[i64], contract: &[i64]) -> Vec<i64> {
    (0..rank as i64).filter(|a| !batch.contains(a) && !contract.contains(a)).collect()
}

pub fn dot_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    let mut out = vec![None, None];
    let Some(ct) = ct[0] else { return Ok(out) };
    let batch = [v.ints("batch_a"), v.ints("batch_b")];
    let contract = [v.ints("contract_a"), v.ints("contract_b")];
    let rest: Vec<_> =
        (0..2).map(|s| free(em.rank(v.operands[s]), &batch[s], &contract[s])).collect();
    let nb = batch[0].len();
    for side in 0..2 {
        if !wanted[side] {
            continue;
        }
        let other = 1 - side;
        let ty = em.ty(v.operands[side]);
        let (ct, factor) = alike(em, ct, v.operands[other])?;
        // The axes of the cotangent that are the other operand's own.
        let begin = nb + if other == 0 { 0 } else { rest[0].len() };
        let theirs: Vec<i64> = (begin..begin + rest[other].len()).map(|a| a as i64).collect();
        // The operand order is such that a plain matmul needs no transposition: the cotangent is
        // first where it has the leading axes.
        let in_ct = ((0..nb as i64).collect::<Vec<_>>(), theirs);
        let in_factor = (batch[other].clone(), rest[other].clone());
        let (pair, first, second) = match side {
            0 => ([ct, factor], in_ct, in_factor),
            _ => ([factor, ct], in_factor, in_ct),
        };
        let mut spec = OpSpec::new(GraphOp::Dot, &pair)
            .attr("contract_a", ints(first.1))
            .attr("contract_b", ints(second.1));
        if nb > 0 {
            spec = spec.attr("batch_a", ints(first.0)).attr("batch_b", ints(second.0));
        }
        let dtype = em.dtype(factor);
        let product = em.op(sums(spec, v, dtype, ty.dtype()))?;
        // Result: batch axes, then own axes and the contracted ones, in the order of the pair and
        // with the contracted axes in the other operand's order.
        let mut summed: Vec<usize> = (0..contract[other].len()).collect();
        summed.sort_by_key(|&i| contract[other][i]);
        let summed = summed.iter().map(|&i| contract[side][i]);
        let mut order: Vec<i64> = batch[side].clone();
        match side {
            0 => order.extend(rest[side].iter().copied().chain(summed)),
            _ => order.extend(summed.chain(rest[side].iter().copied())),
        }
        let mut perm = vec![0; order.len()];
        for (i, &axis) in order.iter().enumerate() {
            perm[axis as usize] = i as i64;
        }
        let turned = em.transpose(product, &perm)?;
        out[side] = Some(em.retype(turned, &ty)?);
    }
    Ok(out)
}

/// The attributes of a convolution, one entry for each axis of space.
struct Moves {
    strides: Vec<i64>,
    dilate_x: Vec<i64>,
    dilate_w: Vec<i64>,
    lo: Vec<Dim>,
    groups: i64,
}

fn add(a: &Dim, b: &Dim) -> Dim {
    compute(DimOp::Add, a, b)
}

fn sub(a: &Dim, b: &Dim) -> Dim {
    compute(DimOp::Sub, a, b)
}

pub fn conv_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    let mut out = vec![None, None];
    let Some(ct) = ct[0] else { return Ok(out) };
    let n = em.rank(ct) - 2;
    let m = Moves {
        strides: v.ints_or("strides", n, 1),
        dilate_x: v.ints_or("dilate_x", n, 1),
        dilate_w: v.ints_or("dilate_w", n, 1),
        lo: v.exprs("lo", n),
        groups: v.int("groups", 1),
    };
    let (x, w) = (em.ty(v.operands[0]), em.ty(v.operands[1]));
    for side in 0..2 {
        if !wanted[side] {
            continue;
        }
        let ty = if side == 0 { &x } else { &w };
        // Empty windows contribute nothing.
        out[side] = Some(if is_empty(&em.ty(ct)) || is_empty(&x) || is_empty(&w) {
            em.zeros(ty)?
        } else if side == 0 {
            by_x(em, v, &m, ct, &x)?
        } else {
            by_w(em, v, &m, ct, (&x, &w))?
        });
    }
    Ok(out)
}

fn convolve(
    em: &mut Emit,
    v: &View<'_>,
    (a, b): (Value, Value),
    m: &Moves,
    hi: &[Dim],
    out: &Type,
) -> Out {
    let mut spec = OpSpec::new(GraphOp::Conv, &[a, b])
        .attr("lo", extents(&em.exprs(&m.lo)?))
        .attr("hi", extents(&em.exprs(hi)?));
    let lists = [("strides", &m.strides), ("dilate_x", &m.dilate_x), ("dilate_w", &m.dilate_w)];
    for (name, list) in lists.iter().filter(|(_, list)| list.iter().any(|&s| s != 1)) {
        spec = spec.attr(name, ints(list.iter().copied()));
    }
    if m.groups != 1 {
        spec = spec.attr("groups", Attr::Int(m.groups));
    }
    let dtype = em.dtype(a);
    em.op(sums(spec, v, dtype, out.dtype()))
}

/// The cotangent of the input: the cotangent, dilated by `strides`, convolved with the flipped
/// kernel.
fn by_x(em: &mut Emit, v: &View<'_>, m: &Moves, ct: Value, x: &Type) -> Out {
    let (ct, w) = alike(em, ct, v.operands[1])?;
    let dims = em.shape(w);
    let n = dims.len() - 2;
    // [g o, c, …] to [g c, o, …], flipped along the spatial axes.
    let g = Dim::Static(m.groups);
    let out = compute(DimOp::FloorDiv, &dims[0], &g);
    let mut split = vec![g.clone(), out.clone(), dims[1].clone()];
    split.extend_from_slice(&dims[2..]);
    let mut perm: Vec<i64> = (0..split.len() as i64).collect();
    perm.swap(1, 2);
    let mut joined = vec![compute(DimOp::Mul, &g, &dims[1]), out];
    joined.extend_from_slice(&dims[2..]);
    let w = em.reshape(w, &split)?;
    let w = em.transpose(w, &perm)?;
    let w = em.reshape(w, &joined)?;
    let space: Vec<i64> = (2..dims.len() as i64).collect();
    let w = em.reverse(w, &space)?;
    let have = em.shape(ct);
    let (mut lo, mut hi) = (Vec::new(), Vec::new());
    for i in 0..n {
        let window = sub(&spread(&dims[i + 2], m.dilate_w[i]), &Dim::Static(1));
        let before = sub(&window, &m.lo[i]);
        let whole = add(&spread(&x.shape()[i + 2], m.dilate_x[i]), &window);
        let after = sub(&sub(&whole, &spread(&have[i + 2], m.strides[i])), &before);
        lo.push(before);
        hi.push(after);
    }
    let moves = Moves {
        strides: m.dilate_x.clone(),
        dilate_x: m.strides.clone(),
        dilate_w: m.dilate_w.clone(),
        lo,
        groups: m.groups,
    };
    let back = convolve(em, v, (ct, w), &moves, &hi, x)?;
    let back = em.reshape(back, x.shape())?;
    em.retype(back, x)
}

/// The cotangent of the kernel: the input convolved with the cotangent, batch and channels
/// exchanged.
fn by_w(em: &mut Emit, v: &View<'_>, m: &Moves, ct: Value, (x, w): (&Type, &Type)) -> Out {
    let (ct, factor) = alike(em, ct, v.operands[0])?;
    let n = x.rank() - 2;
    let g = Dim::Static(m.groups);
    // [n, g c, …] to [c, g n, …].
    let channels = w.shape()[1].clone();
    let mut split = vec![x.shape()[0].clone(), g.clone(), channels.clone()];
    split.extend_from_slice(&x.shape()[2..]);
    let mut perm: Vec<i64> = (0..split.len() as i64).collect();
    perm.swap(0, 2);
    let mut joined = vec![channels, compute(DimOp::Mul, &g, &x.shape()[0])];
    joined.extend_from_slice(&x.shape()[2..]);
    let factor = em.reshape(factor, &split)?;
    let factor = em.transpose(factor, &perm)?;
    let factor = em.reshape(factor, &joined)?;
    let windows = em.move_axis(ct, 1, 0)?;
    let have = em.shape(ct);
    let hi: Vec<_> = (0..n)
        .map(|i| {
            let window = sub(&spread(&w.shape()[i + 2], m.dilate_w[i]), &Dim::Static(1));
            let reach = add(&spread(&have[i + 2], m.strides[i]), &window);
            sub(&sub(&reach, &spread(&x.shape()[i + 2], m.dilate_x[i])), &m.lo[i])
        })
        .collect();
    let moves = Moves {
        strides: m.dilate_w.clone(),
        dilate_x: m.dilate_x.clone(),
        dilate_w: m.strides.clone(),
        lo: m.lo.clone(),
        groups: m.groups,
    };
    let back = convolve(em, v, (factor, windows), &moves, &hi, w)?;
    let back = em.move_axis(back, 1, 0)?;
    let back = em.reshape(back, w.shape())?;
    em.retype(back, w)
}
