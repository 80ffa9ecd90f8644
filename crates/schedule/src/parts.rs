//! What steps access: memory and parts of it, on which device and queue; and the rules of devices
//! and memory spaces.

use crate::{SchedOp, Schedule};
use tessera_ir::{Attr, Func, Op, OpErrors, OpId, Type, Value, ValueDef};

/// The attribute of a function that lists the kinds of its devices, by number: `[cuda, cuda]`. Without
/// it there is one device, of the kind that its launches' backend works on.
pub(crate) const DEVICES: &str = "devices";

/// The kind of devices whose memory the host reads and writes as its own.
const HOST: &str = "cpu";

/// Where memory is.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Space {
    /// Global memory of the device.
    Device,
    /// Memory of the host.
    Host,
    /// Memory of the host that every device reads and writes.
    Pinned,
}

impl Space {
    pub fn name(self) -> &'static str {
        match self {
            Space::Device => "device",
            Space::Host => "host",
            Space::Pinned => "pinned",
        }
    }

    pub fn parse(word: &str) -> Option<Space> {
        [Space::Device, Space::Host, Space::Pinned].into_iter().find(|s| s.name() == word)
    }
}

/// A queue of a device: its steps run in the order of the text.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub device: i64,
    pub queue: i64,
}

impl Place {
    /// The queue on which arguments are ready when the plan begins, and results when it has run.
    pub const MAIN: Place = Place { device: 0, queue: 0 };
}

/// Where a step runs.
pub fn place(op: &Op<Schedule>) -> Place {
    let number = |name: &str| op.attr(name).and_then(Attr::as_int).unwrap_or(0);
    Place { device: number("device"), queue: number("queue") }
}

/// The kinds of a plan's devices, where it lists them.
pub fn device_kinds(func: &Func<Schedule>) -> Option<Vec<String>> {
    let list = func.attrs.get(DEVICES)?.as_list()?;
    list.iter().map(|kind| kind.as_word().map(str::to_string)).collect()
}

/// Where memory is: its space and its device. Arguments and constants are on device 0.
pub fn space(func: &Func<Schedule>, memory: Value) -> (Space, i64) {
    let Some(op) = func.def(whole(func, memory)) else { return (Space::Device, 0) };
    let word = op.attr("space").and_then(Attr::as_word);
    (word.and_then(Space::parse).unwrap_or(Space::Device), place(op).device)
}

pub(crate) fn shown(func: &Func<Schedule>, v: Value) -> String {
    func.name_of(v).map_or_else(|| v.to_string(), |name| format!("%{name}"))
}

/// The memory that a value is, or is a part of.
pub fn whole(func: &Func<Schedule>, mut v: Value) -> Value {
    // The verifier refuses a part of nothing.
    while let Some(op) = func.def(v)
        && op.code == SchedOp::View
        && let Some(&of) = op.operands.first()
    {
        v = of;
    }
    v
}

/// The bytes of memory of this type, where its extents are known.
pub(crate) fn bytes(ty: &Type) -> Option<i64> {
    ty.static_shape()?.iter().try_fold(ty.dtype().bytes() as i64, |n, &d| n.checked_mul(d))
}

/// The trip count of the loop with this index.
pub(crate) fn trip(func: &Func<Schedule>, index: Value) -> Option<i64> {
    let ValueDef::Arg(block, _) = func.values[index].def else { return None };
    let op = &func.ops[func.blocks[block].parent?];
    (op.code == SchedOp::Loop).then(|| op.attr("trip").and_then(Attr::as_int))?
}

/// Elements of a piece of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub of: Value,
    /// From the first byte to behind the last, in all iterations of the loops that move it; none
    /// where that is not known.
    pub bytes: Option<(i64, i64)>,
}

/// The memory of a value, and which bytes of it.
pub fn part(func: &Func<Schedule>, v: Value) -> Part {
    Part { of: whole(func, v), bytes: extent(func, v) }
}

/// Adds the steps of an axis or a loop to a range of bytes.
fn reach((low, high): (i64, i64), count: i64, step: i64) -> Option<(i64, i64)> {
    let far = (count - 1).max(0).checked_mul(step)?;
    Some((low.checked_add(far.min(0))?, high.checked_add(far.max(0))?))
}

fn extent(func: &Func<Schedule>, v: Value) -> Option<(i64, i64)> {
    // Where the part begins: an offset and the moves of loops for each view on the way.
    let mut begin = (0i64, 0i64);
    let mut at = v;
    while let Some(op) = func.def(at)
        && op.code == SchedOp::View
    {
        let offset = op.attr("offset").and_then(Attr::as_int).unwrap_or(0);
        begin = (begin.0.checked_add(offset)?, begin.1.checked_add(offset)?);
        let steps = op.attr("iteration_bytes").and_then(Attr::as_ints).unwrap_or_default();
        for (&index, step) in op.group("at").iter().zip(steps) {
            let count = trip(func, index)?;
            if count == 0 {
                // Nothing is accessed in a loop without iterations.
                return Some((0, 0));
            }
            begin = reach(begin, count, step)?;
        }
        at = *op.operands.first()?;
    }
    let ty = func.ty(v);
    let dims = ty.static_shape()?;
    let width = ty.dtype().bytes() as i64;
    if dims.contains(&0) {
        return Some((0, 0));
    }
    let strides = func.def(v).and_then(|op| op.attr("strides")).and_then(Attr::as_ints);
    let mut out = (begin.0, begin.1.checked_add(width)?);
    let mut dense = width;
    for (axis, &extent) in dims.iter().enumerate().rev() {
        let step = match &strides {
            Some(strides) => *strides.get(axis)?,
            None => dense,
        };
        out = reach(out, extent, step)?;
        dense = dense.checked_mul(extent)?;
    }
    Some(out)
}

/// How a step accesses an operand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    pub value: Value,
    pub writes: bool,
}

/// The memory that an op itself accesses, without what is in its regions. What a step writes it may
/// also read; whether it does is its kernel's affair.
pub fn accesses(func: &Func<Schedule>, id: OpId) -> Vec<Access> {
    let op = &func.ops[id];
    let is_memory = |v: Value| matches!(func.ty(v), Type::View { .. });
    let all = |writes: &dyn Fn(usize) -> bool| {
        let each = op.operands.iter().enumerate().filter(|(_, v)| is_memory(**v));
        each.map(|(i, &value)| Access { value, writes: writes(i) }).collect()
    };
    match op.code {
        SchedOp::Launch | SchedOp::Host | SchedOp::Call => {
            let listed = op.attr("writes").and_then(Attr::as_ints).unwrap_or_default();
            all(&|i| listed.contains(&(i as i64)))
        }
        SchedOp::Copy | SchedOp::Collective => all(&|i| i == 1),
        SchedOp::Loop => all(&|_| true),
        SchedOp::If | SchedOp::Yield | SchedOp::Return => all(&|_| false),
        SchedOp::Store
        | SchedOp::Fused
        | SchedOp::Constant
        | SchedOp::View
        | SchedOp::While
        | SchedOp::Free
        | SchedOp::Record
        | SchedOp::Wait => Vec::new(),
    }
}

/// Devices are those of the plan, and steps access memory that their device can.
pub(crate) fn verify_devices(func: &Func<Schedule>, errors: &mut OpErrors) {
    let kinds = device_kinds(func);
    if func.attrs.get(DEVICES).is_some() && kinds.as_ref().is_none_or(Vec::is_empty) {
        errors.structure(format!("expected `{DEVICES}` to be a list of kinds of devices"));
        return;
    }
    let count = kinds.as_ref().map_or(1, Vec::len) as i64;
    let is_host = |device: i64| match &kinds {
        Some(kinds) => {
            usize::try_from(device).ok().and_then(|d| kinds.get(d)).is_some_and(|k| k == HOST)
        }
        None => true,
    };
    for id in func.walk() {
        let op = &func.ops[id];
        errors.at_op(func, id);
        let at = place(op);
        if !(0..count).contains(&at.device) {
            let last = count - 1;
            errors.structure(format!(
                "expected a device of the plan, 0 to {last}, got {}",
                at.device
            ));
            continue;
        }
        if at.queue < 0 {
            errors.structure(format!("expected a queue from 0 on, got {}", at.queue));
        }
        let on_host = op.code == SchedOp::Host;
        if !on_host && !matches!(op.code, SchedOp::Launch | SchedOp::Call | SchedOp::Loop) {
            continue;
        }
        for access in accesses(func, id) {
            let (space, device) = space(func, access.value);
            let fits = match space {
                Space::Pinned => true,
                Space::Host => on_host || is_host(at.device),
                Space::Device if on_host => is_host(device),
                Space::Device => device == at.device,
            };
            if !fits {
                let name = shown(func, access.value);
                let wanted = match on_host {
                    true => "memory of the host".to_string(),
                    false => format!("memory of device {}", at.device),
                };
                let got = match space {
                    Space::Device => format!("on device {device}"),
                    Space::Host | Space::Pinned => format!("in space {}", space.name()),
                };
                errors.structure(format!("expected {wanted}, got {name} {got}"));
            }
        }
    }
    errors.at_func(func);
}
