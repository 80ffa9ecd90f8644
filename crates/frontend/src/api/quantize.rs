//! Block formats of tiles (LANGUAGE 16): elements that share a scale. The arithmetic is that of
//! `tessera_numerics::quantize`, element by element and bit by bit.

use super::mma_scaled::cleared;
use super::{Args, Handler::*, Rows, parts, rows};
use crate::elab::val::{Const, Val};
use crate::elab::{Elab, show_shape};
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Attr, Dim, OpSpec, Type, Value};
use tessera_numerics::{BlockFormat, DType, ReduceOp, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

pub const ROWS: Rows = rows! {
    Group "tile.quantize" "(x, fmt, axis=-1, tensor_scale=None)" Call(quantize),
        "A tile in a block format, as `(data, scales)`: `\"mxfp8_e4m3\"`, `\"mxfp4\"` and the other mx formats have a scale in e8m0 for 32 elements along `axis`, `\"nvfp4\"` one in fp8_e4m3 for 16, and `tensor_scale` for all. A short last block counts as padded with zeros.";
    Group "tile.dequantize" "(data, scales, axis=-1, tensor_scale=None)" Call(dequantize),
        "The f32 values of a tile in a block format: element times scale of its block, times `tensor_scale` for nvfp4. The dtypes of `data` and `scales` say which format it is.";
};

/// The bits of the largest finite f32 and of infinity.
const LARGEST: i64 = 0x7f7f_ffff;
const INFINITY: i64 = 0x7f80_0000;

fn names() -> String {
    BlockFormat::ALL.iter().map(|f| f.name()).collect::<Vec<_>>().join(", ")
}

fn format_of(e: &mut Elab<'_>, args: &Args) -> Option<BlockFormat> {
    let given = args.get("fmt");
    let found = match &given {
        Val::Const(Const::Str(s)) => BlockFormat::from_name(s),
        _ => None,
    };
    if found.is_none() {
        let what = e.describe(&given);
        e.report(
            Diagnostic::new(
                Code::E_UNSUPPORTED_DTYPE,
                format!("expected a block format (one of {}), got {what}", names()),
            )
            .at(args.loc("fmt"))
            .help("write ts.tile.quantize(x, \"mxfp4\")"),
        );
    }
    found
}

/// The scale of the whole tensor, for the format that has one.
fn tensor_scale(e: &mut Elab<'_>, args: &Args, format: BlockFormat) -> Option<Option<Value>> {
    let given = args.get("tensor_scale");
    match (format.has_tensor_scale(), given) {
        (false, Val::None) => Some(None),
        (true, Val::None) => {
            e.error_help(
                Code::E_ARGUMENT,
                format!("{format} needs `tensor_scale`: one f32 for the whole tensor, which a tile does not know"),
                "give amax / (6 * 448) of the tensor, as ts.numerics.quantize uses it, or 1.0",
            );
            None
        }
        (true, v) => {
            let v = match v {
                Val::Const(_) => v,
                other => Val::Rt(e.runtime(&other)?),
            };
            if !matches!(v, Val::Rt(scale) if e.ty(scale).rank() > 0) {
                return Some(Some(e.convert(&v, DType::F32, &[])?));
            }
            let what = e.describe(&v);
            e.error_help(
                Code::E_TYPE,
                format!("expected a number as `tensor_scale`, got {what}"),
                "give one f32 for the whole tensor",
            );
            None
        }
        (false, _) => {
            e.error_help(
                Code::E_ARGUMENT,
                format!("{format} has no scale for the whole tensor"),
                "leave out `tensor_scale=`",
            );
            None
        }
    }
}

fn axis_of(e: &mut Elab<'_>, args: &Args, rank: usize) -> Option<usize> {
    let given = args.get("axis");
    let given = if given == Val::None { Val::int(-1) } else { given };
    parts::axis_of(e, &given, rank)
}

/// Int constants of a value's shape, and bit operations: what follows is arithmetic on i32.
fn int(e: &mut Elab<'_>, like: Value, v: i64) -> Value {
    let ty = e.ty(like).with_dtype(DType::I32);
    e.b().constant(ty, Attr::Int(v))
}

fn float(e: &mut Elab<'_>, like: Value, v: f64) -> Value {
    let ty = e.ty(like).clone();
    e.b().constant(ty, Attr::Float(v))
}

fn ew(e: &mut Elab<'_>, f: ScalarFn, a: Value, b: Value) -> Value {
    e.b().ew(f, &[a, b])
}

fn with_int(e: &mut Elab<'_>, f: ScalarFn, a: Value, v: i64) -> Value {
    let v = int(e, a, v);
    ew(e, f, a, v)
}

fn bitcast(e: &mut Elab<'_>, v: Value, to: DType) -> Value {
    let ty = e.ty(v).with_dtype(to);
    let spec = OpSpec::new(TileOp::Bitcast, &[v]).result(ty);
    e.b().value(spec).expect("the result type is given")
}

fn reshape(e: &mut Elab<'_>, v: Value, shape: Vec<Dim>) -> Value {
    if e.ty(v).shape() == shape {
        return v;
    }
    let ty = Type::value(shape, e.ty(v).dtype());
    let spec = OpSpec::new(TileOp::Reshape, &[v]).result(ty);
    e.b().value(spec).expect("the result type is given")
}

/// A saturating conversion.
fn saturated(e: &mut Elab<'_>, v: Value, to: DType) -> Value {
    let ty = e.ty(v).with_dtype(to);
    let spec = OpSpec::new(TileOp::Cast, &[v]).attr("saturate", Attr::Bool(true)).result(ty);
    e.b().value(spec).expect("the result type is given")
}

/// How an axis is divided: `blocks` blocks of `block` elements, the last one maybe short.
struct Blocks {
    axis: usize,
    extent: i64,
    block: i64,
    blocks: i64,
}

impl Blocks {
    fn new(axis: usize, extent: i64, format: BlockFormat) -> Self {
        let block = format.block() as i64;
        Self { axis, extent, block, blocks: (extent + block - 1) / block }
    }

    /// The axis as two: blocks, and elements of a block. A short last block is filled with zeros.
    fn divided(&self, e: &mut Elab<'_>, v: Value) -> Option<Value> {
        let mut v = v;
        let mut shape = e.ty(v).shape().to_vec();
        let missing = self.blocks * self.block - self.extent;
        if missing > 0 {
            let mut rest = shape.clone();
            rest[self.axis] = Dim::Static(missing);
            let ty = Type::value(rest, e.ty(v).dtype());
            let zero = Elab::zero(ty.dtype());
            let zeros = e.b().constant(ty, zero);
            match parts::joined(e, &[v, zeros], self.axis) {
                Val::Rt(whole) => v = whole,
                _ => return None,
            }
        }
        shape[self.axis] = Dim::Static(self.blocks);
        shape.insert(self.axis + 1, Dim::Static(self.block));
        Some(reshape(e, v, shape))
    }

    /// The two axes as one again, without what was filled in.
    fn joined(&self, e: &mut Elab<'_>, v: Value) -> Value {
        let mut shape = e.ty(v).shape().to_vec();
        shape.remove(self.axis + 1);
        shape[self.axis] = Dim::Static(self.blocks * self.block);
        let v = reshape(e, v, shape.clone());
        shape[self.axis] = Dim::Static(self.extent);
        let rank = shape.len();
        e.slice_value(v, &vec![0; rank], &vec![1; rank], shape)
    }

    /// A value of each block for each of its elements, in the shape of the tile.
    fn each(&self, e: &mut Elab<'_>, v: Value) -> Value {
        let wide = e.b().expand(v, self.axis + 1);
        let mut shape = e.ty(wide).shape().to_vec();
        shape[self.axis + 1] = Dim::Static(self.block);
        let wide = e.b().broadcast(wide, shape);
        self.joined(e, wide)
    }
}

fn quantize(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(format) = format_of(e, args) else { return Val::Poison };
    let Some(x) = parts::tile_of(e, &args.get("x"), "to quantize") else { return Val::Poison };
    let rank = e.ty(x).rank();
    let Some(axis) = axis_of(e, args, rank) else { return Val::Poison };
    let Some(scale) = tensor_scale(e, args, format) else { return Val::Poison };
    let shape = e.ty(x).shape().to_vec();
    let Some(extent) = e.ty(x).static_shape().map(|s| s[axis]) else {
        // While checking, sizes may be open.
        let zero = |e: &mut Elab<'_>, shape, dtype| {
            let zero = Elab::zero(dtype);
            Val::Rt(e.b().constant(Type::value(shape, dtype), zero))
        };
        let data = zero(e, shape.clone(), format.element());
        let mut blocks = shape;
        blocks[axis] = Dim::Any;
        return Val::Tuple(vec![data, zero(e, blocks, format.scale())]);
    };
    let blocks = Blocks::new(axis, extent, format);
    let x = e.b().cast(x, DType::F32);
    // By their bits, magnitudes are in order, and NaN is above infinity; of unsigned integers the
    // zeros of padding are the least.
    let magnitude = e.b().ew(ScalarFn::Abs, &[x]);
    let magnitude = bitcast(e, magnitude, DType::U32);
    let Some(magnitude) = blocks.divided(e, magnitude) else { return Val::Poison };
    let most = e.b().reduce(magnitude, ReduceOp::Max, axis + 1);
    let most = bitcast(e, most, DType::I32);
    // An infinity counts as the largest finite number. A NaN spoils its whole block below, whatever
    // stands in its place. Zeros of padding stay zeros here and in what follows.
    let nan = e.b().ew(ScalarFn::IsNan, &[x]);
    let zero = float(e, x, 0.0);
    let number = e.b().select(nan, zero, x);
    let [least, largest] = [-1.0, 1.0].map(|sign| float(e, x, sign * f64::from(f32::MAX)));
    let bounded = ew(e, ScalarFn::Maximum, number, least);
    let bounded = ew(e, ScalarFn::Minimum, bounded, largest);
    let (data, scales) = match scale {
        None => mx(e, &blocks, format, bounded, most),
        Some(s) => nvfp4(e, &blocks, format, bounded, most, s),
    };
    Val::Tuple(vec![Val::Rt(data), Val::Rt(scales)])
}

/// The scale is a power of two, by its exponent: of the largest magnitude less that of the element
/// type's largest number. Exponents below e8m0's, those of subnormal numbers too, become its least.
fn mx(
    e: &mut Elab<'_>,
    blocks: &Blocks,
    format: BlockFormat,
    x: Value,
    most: Value,
) -> (Value, Value) {
    let nan = with_int(e, ScalarFn::Gt, most, INFINITY);
    let finite = with_int(e, ScalarFn::Minimum, most, LARGEST);
    let exponent = with_int(e, ScalarFn::Shr, finite, 23);
    let code = with_int(e, ScalarFn::Sub, exponent, i64::from(format.element_exponent()));
    let code = with_int(e, ScalarFn::Maximum, code, 0);
    let not_a_number = int(e, code, 255);
    let stored = e.b().select(nan, not_a_number, code);
    let stored = e.b().cast(stored, DType::U8);
    let scales = bitcast(e, stored, DType::E8M0);
    // One over the scale is a normal f32, so a quotient is exact where it does not round to zero.
    let least = int(e, code, 254);
    let inverse = ew(e, ScalarFn::Sub, least, code);
    let inverse = with_int(e, ScalarFn::Shl, inverse, 23);
    let not_a_number = int(e, code, 0x7fc0_0000);
    let inverse = e.b().select(nan, not_a_number, inverse);
    let inverse = bitcast(e, inverse, DType::F32);
    let inverse = blocks.each(e, inverse);
    let scaled = cleared(e, ScalarFn::Mul, x, inverse);
    (saturated(e, scaled, format.element()), scales)
}

/// All arithmetic is f32; a scale of zero gives zeros.
fn nvfp4(
    e: &mut Elab<'_>,
    blocks: &Blocks,
    format: BlockFormat,
    x: Value,
    most: Value,
    tensor: Value,
) -> (Value, Value) {
    let nan = with_int(e, ScalarFn::Gt, most, INFINITY);
    let finite = with_int(e, ScalarFn::Minimum, most, LARGEST);
    let not_a_number = int(e, most, 0x7fc0_0000);
    let amax = e.b().select(nan, not_a_number, finite);
    let amax = bitcast(e, amax, DType::F32);
    let shape = e.ty(amax).shape().to_vec();
    let whole = e.b().broadcast(tensor, shape);
    let six = float(e, amax, 6.0);
    let largest = ew(e, ScalarFn::Mul, six, whole);
    let wanted = ew(e, ScalarFn::Div, amax, largest);
    let zero = float(e, amax, 0.0);
    // 0 / 0 is no number that was there; a NaN is.
    let (empty, unscaled) = (ew(e, ScalarFn::Eq, amax, zero), ew(e, ScalarFn::Eq, whole, zero));
    let none = e.b().ew(ScalarFn::Not, &[nan]);
    let unscaled = ew(e, ScalarFn::And, unscaled, none);
    let empty = ew(e, ScalarFn::Or, empty, unscaled);
    let wanted = e.b().select(empty, zero, wanted);
    let scales = saturated(e, wanted, format.scale());
    let own = e.b().cast(scales, DType::F32);
    let scale = ew(e, ScalarFn::Mul, own, whole);
    let scale = blocks.each(e, scale);
    let quotient = cleared(e, ScalarFn::Div, x, scale);
    let zero = float(e, scale, 0.0);
    let is_zero = ew(e, ScalarFn::Eq, scale, zero);
    let element = e.b().select(is_zero, zero, quotient);
    (saturated(e, element, format.element()), scales)
}

fn dequantize(e: &mut Elab<'_>, args: &mut Args) -> Val {
    let Some(data) = parts::tile_of(e, &args.get("data"), "of elements") else {
        return Val::Poison;
    };
    let Some(scales) = parts::tile_of(e, &args.get("scales"), "of scales") else {
        return Val::Poison;
    };
    let have = (e.ty(data).dtype(), e.ty(scales).dtype());
    let Some(&format) = BlockFormat::ALL.iter().find(|f| (f.element(), f.scale()) == have) else {
        return e.error_help(
            Code::E_UNSUPPORTED_DTYPE,
            format!(
                "expected the dtypes of a block format, got elements of {} with scales of {}",
                have.0, have.1
            ),
            format!("the formats are {}", names()),
        );
    };
    let Some(axis) = axis_of(e, args, e.ty(data).rank()) else { return Val::Poison };
    let Some(tensor) = tensor_scale(e, args, format) else { return Val::Poison };
    let (shape, own) = (e.ty(data).shape().to_vec(), e.ty(scales).shape().to_vec());
    let block = format.block() as i64;
    let fits = own.len() == shape.len()
        && shape.iter().zip(&own).enumerate().all(|(i, (d, s))| match (i == axis, d, s) {
            (true, Dim::Static(d), Dim::Static(s)) => (d + block - 1) / block == *s,
            (true, _, _) => true,
            (false, d, s) => d.may_equal(s),
        });
    if !fits {
        return e.error_help(
            Code::E_SHAPE_MISMATCH,
            format!(
                "expected a scale for each {block} elements along axis {axis} of shape {}, got scales of shape {}",
                show_shape(&shape),
                show_shape(&own)
            ),
            format!("{format} has blocks of {block} elements; `axis=` says along which axis they run"),
        );
    }
    let values = e.b().cast(data, DType::F32);
    let Some(extent) = e.ty(data).static_shape().map(|s| s[axis]) else { return Val::Rt(values) };
    let blocks = Blocks::new(axis, extent, format);
    let scales = e.b().cast(scales, DType::F32);
    let scales = blocks.each(e, scales);
    let values = cleared(e, ScalarFn::Mul, values, scales);
    Val::Rt(match tensor {
        None => values,
        Some(s) => {
            let s = e.b().broadcast(s, shape);
            ew(e, ScalarFn::Mul, values, s)
        }
    })
}
