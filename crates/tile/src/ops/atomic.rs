//! Atomic changes of memory (SPEC 5): which there are, and what they need.

use super::memory::index_shape;
use crate::Tile;
use tessera_diag::Code;
use tessera_ir::{Attr, Func, InferContext, OpErrors, OpId, Privilege, Shape, Type};
use tessera_numerics::ScalarFn;

/// What an atomic op may do.
pub const OPS: [&str; 9] = ["add", "sub", "max", "min", "and", "or", "xor", "exchange", "cas"];
/// How it is ordered with other accesses, the default first.
pub const ORDERS: [&str; 5] = ["relaxed", "acquire", "release", "acq_rel", "seq_cst"];
/// Among whom it is atomic, from the narrowest. The default is `device`.
pub const SCOPES: [&str; 6] = ["thread", "warp", "block", "cluster", "device", "mesh"];

/// How an atomic op combines what is there with the value; `None` for `exchange` and `cas`.
pub fn combine(op: &str) -> Option<ScalarFn> {
    Some(match op {
        "add" => ScalarFn::Add,
        "sub" => ScalarFn::Sub,
        "max" => ScalarFn::Maximum,
        "min" => ScalarFn::Minimum,
        "and" => ScalarFn::And,
        "or" => ScalarFn::Or,
        "xor" => ScalarFn::Xor,
        _ => return None,
    })
}

/// Whether a parameter of this privilege may be changed so. A `reduce_*` parameter takes its own
/// operator, and a sum also differences.
pub fn allowed(privilege: Privilege, op: &str) -> bool {
    match privilege {
        Privilege::ReadWrite => true,
        Privilege::ReduceSum => matches!(op, "add" | "sub"),
        Privilege::ReduceMax => op == "max",
        Privilege::ReduceMin => op == "min",
        Privilege::Read | Privilege::Write | Privilege::ReduceProd => false,
    }
}

/// The shape of the index tiles; none where all indices are scalars.
fn shape_of(at: &[Type]) -> Result<Shape, String> {
    if at.iter().all(|t| t.rank() == 0) { Ok(Vec::new()) } else { index_shape(at) }
}

pub fn infer_atomic(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    Ok(vec![Type::value(shape_of(c.group("at"))?, c.operands[0].dtype())])
}

pub fn verify_atomic(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (mem, value) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    let word = |name: &str| op.attr(name).and_then(Attr::as_word);
    let what = word("op").unwrap_or_default();
    for (name, given, legal) in [
        ("op", Some(what), &OPS[..]),
        ("order", word("order"), &ORDERS),
        ("scope", word("scope"), &SCOPES),
    ] {
        if given.is_some_and(|g| !legal.contains(&g)) {
            errors.structure(format!("expected `{name}` among {}", legal.join(" ")));
            return;
        }
    }
    let at: Vec<_> = op.group("at").iter().map(|&v| func.ty(v).clone()).collect();
    if at.len() != mem.rank() {
        errors.shape(format!("expected {} indices for {mem}, got {}", mem.rank(), at.len()));
        return;
    }
    match shape_of(&at) {
        Err(why) => errors.shape(why),
        Ok(shape) if value.shape() != shape => {
            errors.shape(format!("expected a value of the indices' shape, got {value}"));
        }
        Ok(_) => {}
    }
    match combine(what) {
        None if value.dtype() != mem.dtype() => {
            errors.ty(format!(
                "expected a value of dtype {}, got {value}: cast it first",
                mem.dtype()
            ));
        }
        Some(_) if value.dtype() != value.dtype().compute() => {
            errors.ty(format!("expected a dtype that arithmetic is done in, got {value}"));
        }
        Some(f) if !f.accepts(value.dtype()) => {
            errors.ty(format!("expected a dtype that `{what}` combines, got {value}"));
        }
        _ => {}
    }
    match (what, op.group("expected").first()) {
        ("cas", Some(&e)) if func.ty(e) == value => {}
        ("cas", Some(&e)) => {
            errors
                .ty(format!("expected `expected` of the value's type {value}, got {}", func.ty(e)));
        }
        ("cas", None) => errors.structure("expected `expected(…)` for `cas`"),
        (_, Some(_)) => {
            errors.structure(format!("expected `expected(…)` for `cas` only, got it for `{what}`"))
        }
        (_, None) => {}
    }
    let Type::View { privilege, .. } = mem else { return };
    let name = func.name_of(op.operands[0]).unwrap_or("memory");
    if !allowed(*privilege, what) {
        errors.push(
            Code::E_PRIVILEGE,
            format!(
                "expected a privilege that lets `{name}` be changed by atomic `{what}`, got {}",
                privilege.name()
            ),
        );
    } else if privilege.reduces() && is_used(func, id) {
        errors.push(
            Code::E_PRIVILEGE,
            format!(
                "expected the old value of `{name}` to be left alone, got a use of it beside {}",
                privilege.name()
            ),
        );
    }
}

/// Whether anything uses the value that was there before.
pub fn is_used(func: &Func<Tile>, id: OpId) -> bool {
    let result = func.ops[id].result();
    func.walk().iter().any(|&other| func.ops[other].operands.contains(&result))
}
