//! Memory: shared buffers, copies, explicit loads and stores.

use super::reduce::flag;
use super::{Args, Handler::*, Rows, create, rows};
use crate::elab::val::{BlockRef, Const, Reach, Val};
use crate::elab::{Elab, show_shape};
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Attr, Dim, OpSpec, Privilege, Type, Value};
use tessera_numerics::DType;
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Any "tile.alloc_shared" "(shape, dtype, swizzle=None, alignment=16)" Call(alloc_shared),
        "A buffer that the group shares, not initialised. In group kernels it names the value last copied into it.";
    Lane "tile.alloc_local" "(shape, dtype)" Call(alloc_local),
        "An array that each lane has for itself, not initialised; its index may be a number of run time.";
    Group "tile.cp_async" "(dst, src, stage=None)" Call(cp_async),
        "Copies a slice of a parameter over a whole shared buffer, or over one of its stages, `buffer[i % 3]`; elements outside the tensor become zero. A read waits by itself.";
    Any "tile.barrier" "()" Call(barrier),
        "A barrier: all lanes of the group reach it before any goes on, and see each other's writes. In group kernels it is a hint.";
    Any "tile.load" "(t, index=None, mask=None, other=None, inbounds=False)" Call(load),
        "Reads `t[index]`; elements outside, or where the mask is false, are `other` (0). `inbounds` says that none is outside.";
    Any "tile.store" "(t, index=None, value=None, mask=None, unique=False)" Call(store),
        "Writes `t[index] = value` where the mask holds. `store(t[...], value, mask=m)` works too. `unique` says that no element is written twice, by this store or by another group.";
    Any "tile.owned" "(t)" Call(owned),
        "Says that from here on this group alone touches the slice or element: `ts.tile.owned(C[i:i + 16])`. Checked mode verifies it.";
    Group "tile.accumulate" "(t, value)" Call(accumulate),
        "Folds a value into a slice with the parameter's own operator: `ts.tile.accumulate(C[i, :], v)`.";
    Group "tile.cp_commit_group" "()" Call(commit),
        "Ends a group of `cp_async` copies. A kernel that calls it waits for its copies itself: neither a read nor `barrier()` does.";
    Group "tile.cp_wait_group" "(n)" Call(cp_wait_group), "Waits until at most the `n` newest groups of copies are in flight.";
    Group "tile.wait_async" "(stage)" Call(wait_async), "Waits for the copies begun with `cp_async(…, stage=stage)`, a compile-time integer.";
};

fn alloc_shared(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(shape) = create::shape_of(e, &args.get("shape")) else { return Val::Poison };
    let Some(dtype) = create::dtype_of(e, args, "dtype", DType::F32) else { return Val::Poison };
    let mut spec = OpSpec::new(TileOp::BufAlloc, &[]).result(Type::Buf { shape, dtype });
    match args.get("swizzle") {
        Val::None => {}
        Val::Const(Const::Str(s))
            if s.chars().all(|c| c.is_alphanumeric() || c == '_') && !s.is_empty() =>
        {
            spec = spec.attr("swizzle", Attr::word(s));
        }
        other => {
            let what = e.describe(&other);
            return e.error_help(
                Code::E_ARGUMENT,
                format!("expected swizzle=\"xor\" or None, got {what}"),
                "leave it out: the compiler chooses the layout of the buffer",
            );
        }
    }
    if let Some(a) = args.get("alignment").as_const_int() {
        if a <= 0 || a.count_ones() != 1 {
            return e.error_help(
                Code::E_ARGUMENT,
                format!("expected an alignment that is a power of two, got {a}"),
                "write `alignment=16`, or leave it out",
            );
        }
        spec = spec.attr("alignment", Attr::Int(a));
    }
    match e.b().value(spec) {
        Ok(buf) => Val::Buf { buf, transposed: false },
        Err(_) => Val::Poison,
    }
}

/// A private array is a column of a shared buffer: the lane's index comes last, so that neighbours
/// are in different banks.
fn alloc_local(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(mut shape) = create::shape_of(e, &args.get("shape")) else { return Val::Poison };
    let Some(dtype) = create::dtype_of(e, args, "dtype", DType::F32) else { return Val::Poison };
    let Some(lanes) = e.decl.group_lanes() else {
        return e.error_help(
            Code::E_ARGUMENT,
            "expected a kernel that says how many lanes form a group: the arrays of its lanes share memory of a size that must be known",
            "write `@ts.kernel(lanes=64)`; an array of 16 numbers of f32 then takes 4 KiB of shared memory for each group",
        );
    };
    shape.push(Dim::Static(lanes));
    let spec = OpSpec::new(TileOp::BufAlloc, &[]).result(Type::Buf { shape, dtype });
    let Ok(buf) = e.b().value(spec) else { return Val::Poison };
    let own = e.b().value(OpSpec::new(TileOp::LocalId, &[]).result(Type::INDEX));
    own.map_or(Val::Poison, |own| Val::Local { buf, own })
}

/// A copy into a part of a buffer, such as one of its stages.
fn copy_into(e: &mut Elab<'_>, args: &Args, into: &BlockRef) -> Val {
    let from = match args.get("src") {
        Val::Block(b) if matches!(e.ty(b.mem), Type::View { .. }) => *b,
        Val::View(v) => match whole(e, v) {
            Some(b) => b,
            None => return Val::Poison,
        },
        other => {
            let what = e.describe(&other);
            return e.error_help(
                Code::E_TYPE,
                format!("expected a slice of a parameter to copy from, got {what}"),
                "write ts.tile.cp_async(buffer[stage], x[start:start + 16])",
            );
        }
    };
    let (to, of) = (e.ty(into.mem).dtype(), e.ty(from.mem).dtype());
    if to != of {
        return e.error_help(
            Code::E_TYPE,
            format!("expected one dtype, got a copy of {of} into a buffer of {to}"),
            format!("allocate the buffer with dtype ts.{of}, and cast when you use it"),
        );
    }
    if let Some((at, axis)) = outside(e, into) {
        let stages = show_shape(&e.ty(into.mem).shape()[axis..=axis]);
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!("expected a position inside the buffer's axis {stages}, got {at}"),
            "copy into one of its stages: `buffer[i % stages]`",
        );
    }
    let indexed = from.reach.contains(&Reach::Gather);
    if let Some(parts) = whole_behind(e, into)
        && from.is_plain()
        && !indexed
        && e.block_shape(&from) == e.ty(into.mem).shape()[parts..]
    {
        copy_op(e, args, into.mem, &from, &into.at[..parts]);
    } else if let Some(value) = e.load_block(&from) {
        e.store_block(into, &Val::Rt(value), None);
    }
    Val::None
}

/// A constant position outside its axis, and the axis.
fn outside(e: &Elab<'_>, block: &BlockRef) -> Option<(i64, usize)> {
    let dims = e.ty(block.mem).shape();
    (0..dims.len()).find_map(|axis| {
        let op = e.func.def(block.at[axis]).filter(|op| op.code == TileOp::Const)?;
        let at = op.attr("value")?.as_int()?;
        let extent = dims[axis].as_static()?;
        let alone = matches!(block.reach[axis], Reach::Point);
        (alone && !(0..extent).contains(&at)).then_some((at, axis))
    })
}

/// How many leading axes of a buffer a block gives a position for, where it takes in all of the
/// others.
fn whole_behind(e: &Elab<'_>, block: &BlockRef) -> Option<usize> {
    let parts = block.reach.iter().take_while(|r| matches!(r, Reach::Point)).count();
    let dims = e.ty(block.mem).shape();
    let whole = |axis: usize| {
        let all = matches!(&block.reach[axis], Reach::Span(d) if *d == dims[axis]);
        let start = e.func.def(block.at[axis]).filter(|op| op.code == TileOp::Const);
        all && start.and_then(|op| op.attr("value")?.as_int()) == Some(0)
    };
    (block.is_plain() && (parts..dims.len()).all(whole)).then_some(parts)
}

fn cp_async(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let stage = args.get("stage");
    if args.has("stage") && !matches!(stage, Val::Open(_)) && stage.as_const_int().is_none() {
        let what = e.describe(&stage);
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected `stage` to be a compile-time integer, got {what}"),
            BY_GROUPS,
        );
    }
    if let Val::Block(into) = args.get("dst")
        && matches!(e.ty(into.mem), Type::Buf { .. })
    {
        return copy_into(e, args, &into);
    }
    let Val::Buf { buf, transposed: false } = args.get("dst") else {
        let what = e.describe(&args.get("dst"));
        return e.report(
            Diagnostic::new(
                Code::E_TYPE,
                format!("expected a shared buffer to copy into, got {what}"),
            )
            .at(args.loc("dst"))
            .help("allocate one: ts.tile.alloc_shared((BM, BK), ts.bf16)"),
        );
    };
    let block = match args.get("src") {
        Val::Block(b) if matches!(e.ty(b.mem), Type::View { .. }) => *b,
        Val::View(v) => match whole(e, v) {
            Some(b) => b,
            None => return Val::Poison,
        },
        other => {
            let what = e.describe(&other);
            return e.report(
                Diagnostic::new(
                    Code::E_TYPE,
                    format!("expected a slice of a parameter to copy from, got {what}"),
                )
                .help("write ts.tile.cp_async(buffer, x[start:start + 16])")
                .at(args.loc("src")),
            );
        }
    };
    if block.reach.contains(&Reach::Gather) {
        return e.error_help(
            Code::E_UNSUPPORTED,
            "expected a slice to copy from, got index tiles",
            "read it into a tile and store that: buffer[:] = x[index]",
        );
    }
    let Some(block) = matching_block(e, args, buf, block) else { return Val::Poison };
    let plain = block.is_plain() && !e.is_packed(block.mem);
    let (to, from) = (e.ty(buf).dtype(), e.ty(block.mem).dtype());
    if to != from {
        return e.report(
            Diagnostic::new(
                Code::E_TYPE,
                format!("expected one dtype, got a copy of {from} into a buffer of {to}"),
            )
            .at(args.loc("src"))
            .help(format!("allocate the buffer with dtype ts.{from}, and cast when you use it")),
        );
    }
    if !plain {
        // A slice with a step, a transposed one and one of packed elements is loaded and stored.
        if let (Some(value), Some(into)) = (e.load_block(&block), whole(e, buf)) {
            e.store_block(&into, &Val::Rt(value), None);
        }
        return Val::None;
    }
    copy_op(e, args, buf, &block, &[]);
    Val::None
}

fn copy_op(e: &mut Elab<'_>, args: &Args, buf: Value, from: &BlockRef, into: &[Value]) {
    let extents = from.reach.iter().map(|r| match r {
        Reach::Span(d) => d.as_static().filter(|&v| v > 0).unwrap_or(-1),
        Reach::Point | Reach::Gather => 0,
    });
    let mut spec = OpSpec::new(TileOp::CopyAsync, &[buf, from.mem])
        .group("at", &from.at)
        .group("into", into)
        .attr("extent", Attr::ints(extents));
    if let Some(stage) = args.get("stage").as_const_int() {
        spec = spec.attr("stage", Attr::Int(stage));
    }
    let _ = e.b().op(spec);
}

/// The block, if it has the buffer's shape. A block of higher rank is reported with the subscript
/// to write; elaboration goes on with the axes that fit, taken at their first position.
fn matching_block(
    e: &mut Elab<'_>,
    args: &Args,
    buf: Value,
    mut block: BlockRef,
) -> Option<BlockRef> {
    let want = e.ty(buf).shape().to_vec();
    let have = e.block_shape(&block);
    let equal = want.len() == have.len() && want.iter().zip(&have).all(|(a, b)| a.may_equal(b));
    if equal {
        return Some(block);
    }
    let name = e.func.name_of(block.mem).unwrap_or("x").to_string();
    let dims = show_shape(e.ty(block.mem).shape());
    let mut d = Diagnostic::new(
        Code::E_SHAPE_MISMATCH,
        format!(
            "expected a slice of the buffer's shape {}, got a slice of shape {} of `{name}`",
            show_shape(&want),
            show_shape(&have)
        ),
    )
    .at(args.loc("src"))
    .note(format!("`{name}` has shape {dims}"));
    if have.len() > want.len() {
        let text = args.text("src");
        let inner = text.find('[').map_or("…", |i| text[i + 1..].trim_end_matches(']'));
        let given = inner.split(',').count();
        let rank = e.ty(block.mem).rank();
        let mut items = vec!["bh".to_string(), inner.to_string()];
        items.extend((given + 1..rank).map(|_| ":".to_string()));
        d = d.help(format!(
            "index the leading axis: `{name}[{}]` with `bh = ts.tile.program_id(0)`",
            items.join(", ")
        ));
    }
    e.report(d);
    let mut next = 0;
    for reach in &mut block.reach {
        let fits = matches!(reach, Reach::Span(d) if want.get(next).is_some_and(|w| w == d));
        if fits {
            next += 1;
        } else {
            *reach = Reach::Point;
        }
    }
    (next == want.len()).then_some(block)
}

/// A whole parameter as a block.
fn whole(e: &mut Elab<'_>, view: Value) -> Option<BlockRef> {
    let dims = e.ty(view).shape().to_vec();
    let mut block = BlockRef::new(view);
    for dim in dims {
        let v = crate::elab::names::dim_val(&dim);
        let extent = e.extent(&v, "the extent of the parameter")?;
        let zero = e.b().index(0);
        block.push(zero, Reach::Span(extent), 1);
    }
    Some(block)
}

fn commit(e: &mut Elab<'_>, _: &mut Args) -> Val {
    let _ = e.b().op(OpSpec::new(TileOp::CopyCommit, &[]));
    Val::None
}

fn cp_wait_group(e: &mut Elab<'_>, args: &mut Args) -> Val {
    wait(e, args, "n", "write a number: how many groups of copies may be in flight")
}

fn wait_async(e: &mut Elab<'_>, args: &mut Args) -> Val {
    wait(e, args, "stage", BY_GROUPS)
}

const BY_GROUPS: &str = "number the stages of copies at compile time, or wait by groups where a loop \
    counts them: ts.tile.cp_commit_group() after the copies of an iteration, and \
    ts.tile.cp_wait_group(n) before a read; a kernel without waits of its own needs neither";

fn wait(e: &mut Elab<'_>, args: &mut Args, name: &'static str, help: &str) -> Val {
    let value = match args.get(name) {
        Val::Open(_) => Some(0),
        v => v.as_const_int().filter(|n| *n >= 0),
    };
    let Some(value) = value else {
        let what = e.describe(&args.get(name));
        return e.error_help(
            Code::E_ARGUMENT,
            format!("expected `{name}` to be a compile-time integer of 0 or more, got {what}"),
            help,
        );
    };
    let _ = e.b().op(OpSpec::new(TileOp::CopyWait, &[]).attr(name, Attr::Int(value)));
    Val::None
}

fn barrier(e: &mut Elab<'_>, _: &mut Args) -> Val {
    let _ = e.b().op(OpSpec::new(TileOp::Barrier, &[]));
    Val::None
}

/// `t` with an index, or an already indexed place.
fn place(e: &mut Elab<'_>, args: &Args) -> Option<BlockRef> {
    let transposed = matches!(args.get("t"), Val::ViewT(_));
    let mem = match args.get("t") {
        Val::Block(b) => return Some(*b),
        Val::View(v) | Val::ViewT(v) => v,
        Val::Buf { buf, transposed: false } => buf,
        other => {
            let what = e.describe(&other);
            e.error_help(
                Code::E_TYPE,
                format!("expected a parameter or shared buffer, got {what}"),
                "write the array first and the index after it: ts.tile.load(x, (i, j))",
            );
            return None;
        }
    };
    let items = match args.get("index") {
        Val::Tuple(items) => items,
        Val::None => {
            e.error_help(Code::E_ARGUMENT, "expected an index", "give a position for each axis, ts.tile.load(x, (i, j)), or a slice of the array, ts.tile.load(x[i:i + 16])");
            return None;
        }
        one => vec![one],
    };
    let mut dims = e.ty(mem).shape().to_vec();
    if transposed {
        dims.reverse();
    }
    if items.len() != dims.len() {
        e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!(
                "expected {} indices for a tensor of shape {}, got {}",
                dims.len(),
                show_shape(&dims),
                items.len()
            ),
            "give one scalar or tile of integers for each axis, as a tuple",
        );
        return None;
    }
    let mut block = BlockRef::new(mem);
    for (v, dim) in items.iter().zip(&dims) {
        let (at, reach) = e.point_value(v, dim)?;
        block.push(at, reach, 1);
    }
    if block.reach.contains(&Reach::Gather) && !e.join_indices(&mut block, &dims) {
        return None;
    }
    if transposed {
        block.reverse();
    }
    Some(block)
}

fn mask_of(e: &mut Elab<'_>, args: &Args) -> Option<Option<Value>> {
    if !args.has("mask") {
        return Some(None);
    }
    let mask = e.runtime(&args.get("mask"))?;
    if e.ty(mask).dtype() != DType::Bool {
        let what = e.describe(&Val::Rt(mask));
        e.error_help(
            Code::E_TYPE,
            format!("expected a mask of dtype bool, got {what}"),
            "compare something: mask=i < n",
        );
        return None;
    }
    Some(Some(mask))
}

fn load(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let (Some(mut block), Some(inbounds)) = (place(e, args), flag(e, args, "inbounds")) else {
        return Val::Poison;
    };
    block.hint = inbounds.then_some("inbounds");
    let dtype = e.ty(block.mem).dtype();
    let other = match args.get("other") {
        Val::None => None,
        v => match e.convert(&v, dtype, &[]) {
            Some(v) => Some(v),
            None => return Val::Poison,
        },
    };
    let Some(loaded) = e.load_block_other(&block, other) else { return Val::Poison };
    match mask_of(e, args) {
        None => Val::Poison,
        Some(None) => Val::Rt(loaded),
        Some(Some(mask)) => {
            let fill = match other {
                Some(v) => v,
                None => {
                    let zero = Elab::zero(dtype);
                    e.b().constant(Type::Scalar(dtype), zero)
                }
            };
            e.select(mask, Val::Rt(loaded), Val::Rt(fill))
        }
    }
}

fn store(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let value = match (args.get("t"), args.has("value")) {
        (Val::Block(_), false) => args.get("index"),
        _ => args.get("value"),
    };
    if value == Val::None {
        return e.error_help(
            Code::E_ARGUMENT,
            "expected a value to store",
            "write ts.tile.store(y, index, value) or ts.tile.store(y[i:i + 16], value)",
        );
    }
    let (Some(mut block), Some(unique)) = (place(e, args), flag(e, args, "unique")) else {
        return Val::Poison;
    };
    block.hint = unique.then_some("unique");
    let Some(mut mask) = mask_of(e, args) else { return Val::Poison };
    if let Some(m) = mask
        && !e.ty(m).shape().is_empty()
    {
        let shape = e.block_shape(&block);
        let given = e.ty(m).shape().to_vec();
        let fits = given.len() == shape.len()
            && given.iter().zip(&shape).all(|(a, b)| a.is_one() || a.may_equal(b));
        if !fits {
            return e.error_help(
                Code::E_SHAPE_MISMATCH,
                format!(
                    "expected a mask of the slice's shape {}, got shape {}",
                    show_shape(&shape),
                    show_shape(&given)
                ), "broadcast the condition: compare tiles of the slice's shape, such as ts.tile.arange(16)[:, None] < rows");
        }
        mask = Some(e.b().broadcast(m, shape));
    }
    e.store_block(&block, &value, mask);
    Val::None
}

fn owned(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let block = match args.get("t") {
        Val::Block(b) if matches!(e.ty(b.mem), Type::View { .. }) => *b,
        Val::View(v) => match whole(e, v) {
            Some(b) => b,
            None => return Val::Poison,
        },
        Val::Poison => return Val::Poison,
        other => {
            let what = e.describe(&other);
            return e.error_help(
                Code::E_TYPE,
                format!("expected a slice or an element of a parameter to own, got {what}"),
                "write ts.tile.owned(C[i:i + 16])",
            );
        }
    };
    e.own_block(&block);
    Val::None
}

fn accumulate(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Val::Block(block) = args.get("t") else {
        let what = e.describe(&args.get("t"));
        return e.error_help(
            Code::E_TYPE,
            format!("expected a slice of a parameter, got {what}"),
            "write the place first: ts.tile.accumulate(C[i:i + 16], v)",
        );
    };
    let op = match e.ty(block.mem) {
        Type::View { privilege: Privilege::ReduceMax, .. } => "max",
        Type::View { privilege: Privilege::ReduceMin, .. } => "min",
        Type::View { privilege: Privilege::ReduceProd, .. } => "prod",
        _ => "sum",
    };
    let value = args.get("value");
    e.accumulate_block(&block, &value, op);
    Val::None
}
