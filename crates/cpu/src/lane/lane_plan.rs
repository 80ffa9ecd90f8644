//! Where the ops of a lane kernel are emitted, and which values are kept in memory in between.
//!
//! The ops between two cuts form a segment: one loop over the vectors of lanes. A pure op with the
//! same value for all lanes is emitted once, outside these loops. A value that one segment computes
//! and another uses has a slot, an array with one element for each lane of the group; or it is
//! computed again where that is cheap. Values that loops and branches with cuts in them hand on
//! have slots too.

use super::uniform::{cuts, is_pure, varying, yields};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{BlockId, OpId, Value};
use tessera_numerics::{DType, Profile, Rounding, ScalarFn};
use tessera_support::Entity;
use tessera_tile::attrs::cast_mode;
use tessera_tile::{TileFunc, TileOp};

#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Place {
    /// Once for the group.
    Group,
    /// In the slot of a loop or branch with cuts in it.
    Slot,
    /// For each vector of lanes, between two cuts.
    Segment(u32),
}

pub struct LanePlan {
    varying: Vec<bool>,
    cut: Vec<bool>,
    /// Of ops.
    place: Vec<Place>,
    slot: BTreeMap<Value, u64>,
    again: BTreeSet<Value>,
    masks: BTreeMap<OpId, u64>,
    folded: BTreeSet<Value>,
    /// Slots in all.
    pub slots: u64,
    /// Groups do not matter: their lanes do not synchronise and do not read their position.
    pub flat: bool,
}

/// Ops that a value may cost to be computed again instead of kept.
const CHEAP: u32 = 6;

impl LanePlan {
    pub fn new(func: &TileFunc, profile: Profile) -> Self {
        let walk = func.walk();
        let cut = cuts(func, profile);
        let placed = |id: &OpId| matches!(func.ops[*id].code, TileOp::LocalId | TileOp::ProgramId);
        let flat = !walk.iter().any(|id| cut[id.index()] || placed(id));
        let mut walker = Walker {
            func,
            varying: varying(func),
            cut,
            place: vec![Place::Group; func.ops.len()],
            def: vec![Place::Group; func.values.len()],
            segment: 0,
        };
        walker.group_block(func.body);
        let mut plan = Self {
            folded: folded(func, &walk, &walker.place),
            varying: walker.varying,
            cut: walker.cut,
            place: walker.place,
            slot: BTreeMap::new(),
            again: BTreeSet::new(),
            masks: BTreeMap::new(),
            slots: 0,
            flat,
        };
        plan.keep(func, &walk, &walker.def);
        plan.places_of_control(func, &walk);
        // Vectors may reach past the end of the last slot.
        plan.slots += u64::from(plan.slots > 0);
        plan
    }

    pub fn varies(&self, v: Value) -> bool {
        self.varying[v.index()]
    }

    /// Whether the op is a cut or holds one.
    pub fn is_cut(&self, id: OpId) -> bool {
        self.cut[id.index()]
    }

    pub fn is_group(&self, id: OpId) -> bool {
        self.place[id.index()] == Place::Group
    }

    pub fn slot(&self, v: Value) -> Option<u64> {
        self.slot.get(&v).copied()
    }

    /// Whether the value is computed anew in each segment that uses it.
    pub fn again(&self, v: Value) -> bool {
        self.again.contains(&v)
    }

    /// The first of an op's slots for masks.
    pub fn masks(&self, id: OpId) -> u64 {
        self.masks.get(&id).copied().unwrap_or_default()
    }

    /// Whether the value is a cast that the stores which use it do themselves.
    pub fn is_folded(&self, v: Value) -> bool {
        self.folded.contains(&v)
    }

    fn new_slot(&mut self) -> u64 {
        self.slots += 1;
        self.slots - 1
    }

    /// Gives slots to values that are used outside the segment that computes them.
    fn keep(&mut self, func: &TileFunc, walk: &[OpId], def: &[Place]) {
        let mut cheap = Cheap { func, plan: self, def, known: BTreeMap::new() };
        let (mut kept, mut again) = (BTreeSet::new(), BTreeSet::new());
        for &id in walk {
            for (i, &v) in func.ops[id].operands.iter().enumerate() {
                let home = def[v.index()];
                if !matches!(home, Place::Segment(_)) || cheap.plan.place[id.index()] == home {
                    continue;
                }
                if in_memory(func, id, i) || !cheap.plan.varies(v) || cheap.cost(v).is_none() {
                    kept.insert(v);
                } else {
                    again.insert(v);
                }
            }
        }
        self.again = again;
        for v in kept {
            let slot = self.new_slot();
            self.slot.insert(v, slot);
        }
    }

    /// Slots for scans, for what loops and branches with cuts in them hand on, and for their masks.
    fn places_of_control(&mut self, func: &TileFunc, walk: &[OpId]) {
        for &id in walk {
            let op = &func.ops[id];
            let scan = op.code == TileOp::GroupScan;
            if !self.is_cut(id) || (op.regions.is_empty() && !scan) {
                continue;
            }
            let lists: Vec<Vec<Value>> = match op.code {
                TileOp::For => {
                    let args = &func.blocks[op.regions[0]].args;
                    if self.varies(args[0]) {
                        let slot = self.new_slot();
                        self.slot.insert(args[0], slot);
                    }
                    vec![args[1..].to_vec()]
                }
                TileOp::While => op.regions.iter().map(|&r| func.blocks[r].args.clone()).collect(),
                _ => Vec::new(),
            };
            for (i, &result) in op.results.iter().enumerate() {
                if self.varies(result) {
                    let slot = self.new_slot();
                    self.slot.insert(result, slot);
                    lists.iter().for_each(|list| {
                        self.slot.insert(list[i], slot);
                    });
                }
            }
            let count = match op.code {
                TileOp::If if self.varies(op.operands[0]) => 2,
                TileOp::For if op.operands[..3].iter().any(|&v| self.varies(v)) => 1,
                TileOp::While if yields(func, op.regions[0]).iter().any(|&v| self.varies(v)) => 1,
                _ => 0,
            };
            self.masks.insert(id, self.slots);
            self.slots += count;
        }
    }
}

/// Whether an op reads its operand from the slot itself.
fn in_memory(func: &TileFunc, id: OpId, operand: usize) -> bool {
    match func.ops[id].code {
        TileOp::Print => true,
        TileOp::GroupReduce | TileOp::GroupScan | TileOp::GroupBroadcast | TileOp::GroupShuffle => {
            operand == 0
        }
        _ => false,
    }
}

/// What it costs to compute a value from the ids and from what the group has.
struct Cheap<'a> {
    func: &'a TileFunc,
    plan: &'a LanePlan,
    def: &'a [Place],
    known: BTreeMap<Value, Option<u32>>,
}

impl Cheap<'_> {
    fn cost(&mut self, v: Value) -> Option<u32> {
        if self.def[v.index()] == Place::Group {
            return Some(0);
        }
        if let Some(known) = self.known.get(&v) {
            return *known;
        }
        let cost = self.of_op(v).filter(|&c| c <= CHEAP);
        self.known.insert(v, cost);
        cost
    }

    fn of_op(&mut self, v: Value) -> Option<u32> {
        let op = self.func.def(v)?;
        let own = match op.code {
            TileOp::LinearId | TileOp::LocalId => return Some(0),
            TileOp::Ew(f) if self.func.ty(op.operands[0]).dtype().is_float() => match f {
                ScalarFn::Eq | ScalarFn::Ne | ScalarFn::Lt => 1,
                ScalarFn::Le | ScalarFn::Gt | ScalarFn::Ge => 1,
                _ => return None,
            },
            TileOp::Ew(f) => match f {
                // Quick where the lanes of a vector have one quotient, which is the usual case.
                ScalarFn::FloorDiv | ScalarFn::Mod => {
                    let by_group = self.def[op.operands[1].index()] == Place::Group;
                    if by_group { 3 } else { return None }
                }
                _ => 1,
            },
            TileOp::Select => 1,
            TileOp::Cast => {
                let ints = |v: Value| self.func.ty(v).dtype().is_int();
                if ints(op.operands[0]) && ints(v) { 1 } else { return None }
            }
            _ => return None,
        };
        op.operands.iter().try_fold(own, |sum, &x| Some(sum + self.cost(x)?))
    }
}

/// Casts whose users are stores in the same segment: what a store writes it rounds itself.
fn folded(func: &TileFunc, walk: &[OpId], place: &[Place]) -> BTreeSet<Value> {
    let mut out = BTreeSet::new();
    let mut other = BTreeSet::new();
    for &id in walk {
        let op = &func.ops[id];
        for (i, &v) in op.operands.iter().enumerate() {
            let Some(from) = func.def_id(v).filter(|&d| func.ops[d].code == TileOp::Cast) else {
                continue;
            };
            let (cast, to) = (&func.ops[from], func.ty(v).dtype());
            let mode = cast_mode(cast, to);
            let stored = op.code == TileOp::Store
                && i == 1
                && mode == (Rounding::Rne, to.saturates_by_default())
                && func.ty(cast.operands[0]).dtype() == to.carrier()
                && to != DType::Bool
                && cast.block == op.block
                && place[from.index()] == place[id.index()];
            if stored {
                out.insert(v)
            } else {
                other.insert(v)
            };
        }
    }
    &out - &other
}

struct Walker<'f> {
    func: &'f TileFunc,
    varying: Vec<bool>,
    cut: Vec<bool>,
    place: Vec<Place>,
    /// Of values.
    def: Vec<Place>,
    segment: u32,
}

impl Walker<'_> {
    fn group_block(&mut self, block: BlockId) {
        let func = self.func;
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            if op.is_terminator() {
                continue;
            }
            if !self.cut[id.index()] {
                self.lane_op(id);
                continue;
            }
            // What follows the cut is another segment.
            self.segment += 1;
            match op.code {
                TileOp::Atomic | TileOp::Accumulate => {
                    self.in_segment(id);
                    self.segment += 1;
                    continue;
                }
                // Each lane reads after all lanes have arrived, and before any lane overwrites what
                // others read.
                TileOp::GroupBroadcast | TileOp::GroupShuffle
                    if self.varying[op.result().index()] =>
                {
                    self.in_segment(id);
                    self.segment += 1;
                    continue;
                }
                _ => {}
            }
            for &region in &op.regions {
                self.hand_on(&func.blocks[region].args);
                self.group_block(region);
                self.segment += 1;
            }
            self.hand_on(&op.results);
        }
    }

    /// Values that the group has: one for all lanes, or in a slot.
    fn hand_on(&mut self, values: &[Value]) {
        for v in values {
            let place = if self.varying[v.index()] { Place::Slot } else { Place::Group };
            self.def[v.index()] = place;
        }
    }

    fn in_segment(&mut self, id: OpId) {
        let here = Place::Segment(self.segment);
        self.place[id.index()] = here;
        for v in &self.func.ops[id].results {
            self.def[v.index()] = here;
        }
    }

    fn lane_op(&mut self, id: OpId) {
        let func = self.func;
        let op = &func.ops[id];
        let here = Place::Segment(self.segment);
        let uniform = is_pure(op.code) && op.results.iter().all(|v| !self.varying[v.index()]);
        if uniform && op.operands.iter().all(|v| self.def[v.index()] != here) {
            return;
        }
        self.in_segment(id);
        for &region in &op.regions {
            for v in &func.blocks[region].args {
                self.def[v.index()] = here;
            }
            for &inner in &func.blocks[region].ops {
                if func.ops[inner].is_terminator() {
                    self.place[inner.index()] = here;
                } else {
                    self.lane_op(inner);
                }
            }
        }
    }
}
