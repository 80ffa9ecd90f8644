//! Watching a launch by the lines and names of the user's source: stops before a line runs, and the
//! values that are assigned on one.
//!
//! The machine drops values at their last use, so the watcher keeps its own copy of the latest
//! value of each name. A function that has been through `tile-canonicalise` has fewer names; hosts
//! run the one before it.

use crate::fault::{Fault, Outcome};
use crate::interrupt::interruption;
use crate::lanes::Mask;
use crate::launch::run;
use crate::machine::Machine;
use crate::prepare::prepare;
use crate::program::{Action, Inst};
use crate::value::Tile;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Diagnostics, Loc};
use tessera_ir::{Type, ValueDef};
use tessera_numerics::{DType, Scalar};
use tessera_support::Entity;
use tessera_target::LaunchArgs;
use tessera_tile::{KernelKind, TileFunc, TileOp};

/// Lines of one statement, both ends included.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    pub file: String,
    pub first: u32,
    pub last: u32,
}

impl Lines {
    fn hold(&self, loc: &Loc) -> bool {
        (self.first..=self.last).contains(&loc.line())
            && loc.file().is_some_and(|f| f.name == self.file)
    }
}

/// What the host requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Watch {
    /// Every name that has a value, each time before one of these statements runs.
    Before(Vec<Lines>),
    /// These names, each time the statement has bound them.
    Assigned(Lines, Vec<String>),
}

/// A value as a host can read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub dtype: DType,
    /// Of a lane kernel's values: the lanes of the group.
    pub shape: Vec<i64>,
    /// Little-endian, row-major, one element in whole bytes.
    pub bytes: Vec<u8>,
}

/// A moment that was requested.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    pub file: String,
    pub line: u32,
    pub group: [i64; 3],
    pub values: BTreeMap<String, Observed>,
    /// Lane kernels: which lanes run.
    pub active: Option<Vec<bool>>,
}

/// Receives each moment; `false` ends the launch as an interruption.
pub type Sink<'s> = &'s mut (dyn FnMut(Moment) -> bool + 's);

/// Runs a function once and reports the requested moments. The arrays are written as by any launch.
pub fn watch(
    func: &TileFunc,
    args: &LaunchArgs,
    wanted: &Watch,
    sink: Sink<'_>,
) -> Result<(), Diagnostics> {
    let program = prepare(func)?;
    let mut m = Machine::new(&program);
    m.watch = Some(Box::new(Watcher::new(func, wanted, sink)));
    let end = run(&mut m, args).and_then(|()| m.tell_assigned());
    end.map_err(|e: Fault| (*e).into())
}

/// Lines that have some op of the function, by file.
pub fn lines_of(func: &TileFunc) -> BTreeMap<String, Vec<u32>> {
    let mut out: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for id in func.walk() {
        let loc = &func.ops[id].loc;
        let op = &func.ops[id];
        let silent = match op.code {
            TileOp::Return | TileOp::Yield => true,
            TileOp::Const => func.name_of(op.result()).and_then(user_name).is_none(),
            _ => false,
        };
        if let Some(file) = loc.file().filter(|_| !silent) {
            out.entry(file.name.clone()).or_default().push(loc.line());
        }
    }
    for lines in out.values_mut() {
        lines.sort_unstable();
        lines.dedup();
    }
    out
}

/// A name of the user for a slot of the environment.
struct Named {
    name: Arc<str>,
    /// The inlined function it belongs to; `None` for the kernel's own.
    function: Option<Arc<str>>,
    dtype: DType,
    shape: Vec<i64>,
    /// The host requests the statement that binds it.
    wanted: bool,
    loc: Loc,
}

type Scope = BTreeMap<(Option<Arc<str>>, Arc<str>), (usize, Tile)>;

pub(crate) struct Watcher<'w> {
    stops: Vec<Lines>,
    named: Vec<Option<Named>>,
    /// Slots that are shared memory, among those that have a name.
    buffers: Vec<usize>,
    /// Slots that a block gets when it begins: a new iteration of a loop.
    begins: Vec<bool>,
    lanes: bool,
    scope: Scope,
    group: Option<[i64; 3]>,
    /// Whether the latest op belonged to a requested statement.
    inside: bool,
    /// Values that the requested statement has bound and that were not reported yet.
    assigned: Vec<(usize, Tile, Mask)>,
    sink: Sink<'w>,
}

impl<'w> Watcher<'w> {
    fn new(func: &TileFunc, wanted: &Watch, sink: Sink<'w>) -> Self {
        let lanes = tessera_tile::kind_of(func) == Some(KernelKind::Lane);
        let stops = match wanted {
            Watch::Before(stops) => stops.clone(),
            Watch::Assigned(..) => Vec::new(),
        };
        let mut buffers = Vec::new();
        let mut begins = vec![false; func.values.len()];
        let mut named: Vec<Option<Named>> = Vec::new();
        for (value, data) in func.values.iter() {
            let (loc, direct) = match data.def {
                ValueDef::Result(op, _) => (func.ops[op].loc.clone(), true),
                ValueDef::Arg(block, index) => {
                    begins[value.index()] = index == 0 && func.blocks[block].parent.is_some();
                    let parent = func.blocks[block].parent.map(|op| &func.ops[op]);
                    // A loop's statement binds its variable; the others are only carried.
                    let counts = parent.is_some_and(|op| op.code == TileOp::For) && index == 0;
                    (parent.map_or(func.loc.clone(), |op| op.loc.clone()), counts)
                }
            };
            // The host itself knows the caller's arguments and the sizes of dims.
            let known = match data.def {
                ValueDef::Result(op, _) => func.ops[op].code == TileOp::Dim,
                ValueDef::Arg(block, _) => block == func.body,
            };
            let name = func.name_of(value).and_then(user_name).filter(|_| !known);
            let is_value = matches!(data.ty, Type::Scalar(_) | Type::Tile { .. });
            let is_buffer = matches!(data.ty, Type::Buf { .. });
            let Some(name) = name.filter(|_| is_value || is_buffer) else {
                named.push(None);
                continue;
            };
            if is_buffer {
                buffers.push(value.index());
            }
            let requested = match wanted {
                Watch::Before(_) => false,
                Watch::Assigned(lines, names) => {
                    direct && lines.hold(&loc) && names.iter().any(|n| n == name)
                }
            };
            named.push(Some(Named {
                name: Arc::from(name),
                function: loc.function().cloned(),
                dtype: data.ty.dtype(),
                shape: data.ty.static_shape().unwrap_or_default(),
                wanted: requested,
                loc,
            }));
        }
        Self {
            stops,
            named,
            buffers,
            begins,
            lanes,
            scope: Scope::new(),
            group: None,
            inside: false,
            assigned: Vec::new(),
            sink,
        }
    }

    /// A slot got a value.
    pub fn defined(&mut self, group: [i64; 3], mask: &Mask, slot: usize, value: &Tile) {
        if self.group.replace(group) != Some(group) {
            self.scope.clear();
            self.inside = false;
        }
        self.inside &= !self.begins[slot];
        let Some(named) = &self.named[slot] else { return };
        let key = (named.function.clone(), named.name.clone());
        self.scope.insert(key, (slot, value.clone()));
        if named.wanted {
            self.assigned.push((slot, value.clone(), mask.clone()));
        }
    }

    fn observe(&self, slot: usize, value: &Tile) -> Option<(String, Observed)> {
        let named = self.named[slot].as_ref()?;
        let shape = if self.lanes { vec![value.len() as i64] } else { named.shape.clone() };
        let bytes = value.encode(named.dtype);
        Some((named.name.to_string(), Observed { dtype: named.dtype, shape, bytes }))
    }
}

impl Machine<'_> {
    /// Reports to the host at the requested lines.
    pub(crate) fn look(&mut self, inst: &Inst) -> Outcome<()> {
        self.tell_assigned()?;
        let Some(w) = &mut self.watch else { return Ok(()) };
        // A constant without a name may be anywhere: it does not show where the program is.
        let named = |&slot: &usize| w.named[slot].is_some();
        if matches!(inst.action, Action::Const(_)) && !inst.results.iter().any(named) {
            return Ok(());
        }
        let inside = w.stops.iter().any(|lines| lines.hold(&inst.loc));
        if !inside || std::mem::replace(&mut w.inside, inside) {
            w.inside = inside;
            return Ok(());
        }
        let function = inst.loc.function();
        let here = w.scope.iter().filter(|((f, _), _)| f.as_ref() == function);
        let mut values: BTreeMap<_, _> =
            here.filter_map(|(_, (slot, value))| w.observe(*slot, value)).collect();
        let buffers = w.buffers.clone();
        for slot in buffers {
            values.extend(self.buffer(slot));
        }
        let (group, mask) = (self.group, self.mask.clone());
        self.watch.as_mut().map_or(Ok(()), |w| w.tell(&inst.loc, group, values, &mask))
    }

    /// Shared memory, once all of it was written.
    fn buffer(&self, slot: usize) -> Option<(String, Observed)> {
        let named = self.watch.as_ref()?.named[slot].as_ref()?;
        let memory = self.memory_of(slot)?;
        let (dtype, shape) = (memory.dtype, memory.dims.clone());
        let at = vec![0; shape.len()];
        let data = memory.load(&at, &shape, None, Scalar::zero(dtype)).ok()?;
        Some((named.name.to_string(), Observed { dtype, shape, bytes: data.encode(dtype) }))
    }

    /// Reports what was assigned, after the op that did it.
    pub(crate) fn tell_assigned(&mut self) -> Outcome<()> {
        let Some(w) = &mut self.watch else { return Ok(()) };
        let group = w.group.unwrap_or_default();
        for (slot, value, mask) in std::mem::take(&mut w.assigned) {
            let Some(loc) = w.named[slot].as_ref().map(|n| n.loc.clone()) else { continue };
            let values = w.observe(slot, &value).into_iter().collect();
            w.tell(&loc, group, values, &mask)?;
        }
        Ok(())
    }
}

impl Watcher<'_> {
    fn tell(
        &mut self,
        loc: &Loc,
        group: [i64; 3],
        values: BTreeMap<String, Observed>,
        mask: &Mask,
    ) -> Outcome<()> {
        let file = loc.file().map_or(String::new(), |f| f.name.clone());
        let active = self.lanes.then(|| mask.lanes().to_vec());
        let moment = Moment { file, line: loc.line(), group, values, active };
        if (self.sink)(moment) { Ok(()) } else { Err(interruption()) }
    }
}

/// The name the user wrote: a name of digits is the printer's numbering, and what follows a dot is
/// the suffix that makes equal names unique.
fn user_name(name: &str) -> Option<&str> {
    let name = name.split('.').next()?;
    (!name.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}
