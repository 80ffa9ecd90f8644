//! Thread block clusters with TMA multicast: blocks of a cluster compute neighbouring tiles and
//! fill each other's pipeline stages.
//!
//! A multicast copy is made in parts. Each block copies its part to the same offset in the shared
//! memory of all blocks that need it. The `full` mbarrier at the same offset in each block counts
//! the bytes, so every block expects all parts. A consumer that releases a stage arrives at the
//! `empty` barriers of all blocks that fill it: each lane of one warp arrives at one block. The
//! arrival names no memory order beyond its own block: a cluster-scope release would cost a fence
//! of the whole GPU, and only completed reads need ordering.

use super::Select;
use super::mbar::Speaker;
use super::per_warpgroup_store::Share;
use super::sync::{Region, Smem, SyncState};
use super::wgmma_plan::IN_GROUP;
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type, Value};
use tessera_staged::StagedOp;
use tessera_staged::ops::team::part_of;

/// The part of a copy that this block makes.
pub struct Part {
    pub share: Share,
    /// What is added to the position along the divided axis, and to the address.
    pub first: Reg,
    pub bytes: Reg,
    /// The multicast mask: the blocks that receive it.
    pub blocks: Opnd,
}

/// What the thread that arrives at the barriers of other blocks knows.
#[derive(Copy, Clone)]
pub struct Afar {
    /// Its index among the arriving threads: the rank of the block that it arrives at.
    number: Reg,
    /// The distance to that block's shared memory.
    delta: Reg,
}

/// All ranks that differ from 0 only in `bits`, as a mask.
fn ranks(bits: u32) -> u32 {
    (0..16u32).filter(|rank| rank & !bits == 0).map(|rank| 1 << rank).sum()
}

impl Select<'_> {
    /// A grid counted in clusters.
    pub fn in_teams(&mut self, grid: Vec<Reg>) -> Vec<Reg> {
        let shape = self.team.shape;
        let each = grid.into_iter().zip(shape).map(|(n, by)| match by {
            1 => n,
            _ => {
                let up = Opnd::Int(i64::from(by) - 1);
                let n = self.asm.int(Alu::Add, Ty::U32, &[n.into(), up]);
                self.asm.int(Alu::Shr, Ty::U32, &[n.into(), Opnd::Int(by.trailing_zeros().into())])
            }
        });
        each.collect()
    }

    /// The coordinates of this block's tile, from those of its cluster.
    pub fn in_team(&mut self, at: Vec<Reg>) -> Vec<Reg> {
        let team = self.team;
        let mut out = Vec::new();
        for (axis, at) in at.into_iter().enumerate() {
            let by = team.shape[axis];
            if by == 1 {
                out.push(at);
                continue;
            }
            let own = self.rank_field(team.shift(axis), by);
            let by = Opnd::Int(by.into());
            out.push(self.asm.int(Alu::MadLo, Ty::U32, &[at.into(), by, own.into()]));
        }
        out
    }

    /// Some bits of the rank, as a number below `n`.
    fn rank_field(&mut self, shift: u32, n: u32) -> Reg {
        let rank = self.cta_rank();
        self.head(|me| {
            let place = Opnd::Int(shift.into());
            let r = me.asm.int(Alu::Shr, Ty::U32, &[rank.into(), place]);
            me.asm.int(Alu::And, Ty::B32, &[r.into(), Opnd::Int(i64::from(n) - 1)])
        })
    }

    /// Synchronises all threads of the block, and those of its cluster where blocks fill each
    /// other's pipelines. Work done in `meanwhile` overlaps with the barrier.
    ///
    /// Initialised mbarriers are made visible by their own fence. Where nothing else was written,
    /// no memory fence is needed: a cluster-scope release waits for the whole GPU.
    pub fn all_sync(
        &mut self,
        meanwhile: impl FnOnce(&mut Self) -> Result<(), Diagnostics>,
    ) -> Result<(), Diagnostics> {
        if self.team.blocks() == 1 {
            meanwhile(self)?;
            self.barrier();
            return Ok(());
        }
        let release = self.wrote_before_roles();
        self.asm.emit(Inst::ClusterArrive { release });
        meanwhile(self)?;
        self.asm.emit(Inst::ClusterWait { acquire: true });
        self.swap_sync_state(SyncState::default());
        Ok(())
    }

    /// Whether the block does more before its roles begin than compute scalars and name memory.
    fn wrote_before_roles(&self) -> bool {
        let func = self.func;
        let before = func.blocks[func.body].ops.iter();
        let before = before.take_while(|&&o| func.ops[o].code != StagedOp::WarpSpecialize);
        let writes = |&o: &OpId| {
            let op = &func.ops[o];
            let named = matches!(
                op.code,
                StagedOp::PipelineCreate | StagedOp::SmemAlloc | StagedOp::OrderBarrierCreate
            );
            let number = op.results.iter().all(|&v| matches!(func.ty(v), Type::Scalar(_)));
            !named && (op.results.is_empty() || !number)
        };
        before.copied().any(|o| writes(&o))
    }

    /// Whether a store starts inside its array. Blocks left over at the end of the grid would store
    /// outside; their copies are not issued.
    pub fn reaches_the_array(&mut self, id: OpId) -> Option<Reg> {
        if self.team.blocks() == 1 {
            return None;
        }
        let op = &self.func.ops[id];
        let at = *op.group("at").first()?;
        let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        let extent = Opnd::Int(extent.first().copied().unwrap_or(1).max(1));
        let at = self.scalar(at);
        let end = self.asm.int(Alu::Add, Ty::S64, &[at.into(), extent]);
        Some(self.asm.setp(Cmp::Gt, Ty::S64, end, Opnd::Int(0)))
    }

    /// The part of a fill that this block copies; none where it copies all of it for itself.
    pub fn part_of_cluster(&mut self, id: OpId, m: &Smem) -> Result<Option<Part>, Diagnostics> {
        let (bits, parts) = self.team.of_fill(self.func, id);
        if parts == 1 {
            return Ok(None);
        }
        let Some((dim, part)) = part_of(&m.layout, parts) else {
            return self.unsupported(id, format!("expected a field in {parts} parts"));
        };
        let number = self.rank_field(bits.trailing_zeros(), parts);
        let rank = self.cta_rank();
        let mut next = vec![0; m.layout.shape.len()];
        next[dim] = part;
        let bytes = Opnd::Int(m.layout.offset(&next).into());
        let alone = bits + 1 == self.team.blocks();
        let (first, bytes, blocks) = self.head(|me| {
            let asm = &mut me.asm;
            let part = Opnd::Int(part.into());
            let first = asm.int(Alu::MulLo, Ty::U32, &[number.into(), part]);
            let bytes = asm.int(Alu::MulLo, Ty::U32, &[number.into(), bytes]);
            let set = Opnd::Int(ranks(bits).into());
            let blocks = match alone {
                true => set,
                false => {
                    // The other blocks have the same remaining bits.
                    let rest = Opnd::Int((!bits & 0xf).into());
                    let by = asm.int(Alu::And, Ty::B32, &[rank.into(), rest]);
                    let set = asm.mov(Ty::B32, set);
                    let set = asm.int(Alu::Shl, Ty::B32, &[set.into(), by.into()]);
                    asm.cvt(Ty::U16, Ty::U32, None, set).into()
                }
            };
            (first, bytes, blocks)
        });
        let share = Share { dim, part, groups: parts };
        Ok(Some(Part { share, first, bytes, blocks }))
    }

    /// Arriving threads arrive at the same barrier in all blocks that fill the stage.
    pub fn arrive_in_cluster(
        &mut self,
        id: OpId,
        addr: Addr,
        speaker: Speaker,
        when: Option<Reg>,
    ) -> Result<(), Diagnostics> {
        if self.instance.one_thread {
            return self.unsupported(
                id,
                "expected more than one thread in a role that reads what several blocks fill",
            );
        }
        let pipeline = self.func.ops[id].operands[0];
        if speaker == Speaker::Warp {
            self.asm.emit(Inst::WarpSync { mask: Opnd::Int(0xffff_ffff) });
        }
        let Afar { number, delta } = self.afar(speaker);
        let who = self.speaks_to_peer(pipeline, number);
        let p = self.both(Some(who), when);
        let Addr { base: Base::Reg(bar), offset } = addr else {
            return self.unsupported(id, "expected a barrier at an address");
        };
        let there = self.asm.int(Alu::Add, Ty::U32, &[bar.into(), delta.into()]);
        let (space, addr) = (Space::SharedCluster, Addr::reg(there, offset));
        self.asm.maybe(p, |asm| asm.emit(Inst::MbarArrive { space, addr, count: None }));
        Ok(())
    }

    fn afar(&mut self, speaker: Speaker) -> Afar {
        if let Some(&known) = self.mbars.own.afar.get(&speaker) {
            return known;
        }
        let number = match speaker {
            Speaker::RoleInstance => self.tid(),
            Speaker::Warp => self.lane(),
            Speaker::Group => {
                let bases: Vec<u32> = (0..5 + IN_GROUP as u32).map(|bit| 1 << bit).collect();
                match self.thread_sum(&bases) {
                    Some(r) => r,
                    None => unreachable!("a warpgroup has more than one thread"),
                }
            }
        };
        let base = self.region(Region::Fixed);
        let most = i64::from(self.team.blocks()) - 1;
        let delta = self.head(|me| {
            // Threads that do not arrive still compute a valid address.
            let asm = &mut me.asm;
            let rank = asm.int(Alu::And, Ty::B32, &[number.into(), Opnd::Int(most)]);
            let there = asm.reg(Class::B32);
            asm.emit(Inst::Mapa { d: there, a: base, rank: rank.into() });
            asm.int(Alu::Sub, Ty::U32, &[there.into(), base.into()])
        });
        let known = Afar { number, delta };
        self.mbars.own.afar.insert(speaker, known);
        known
    }

    /// Whether the block that a thread arrives at fills a pipeline here.
    fn speaks_to_peer(&mut self, pipeline: Value, number: Reg) -> Reg {
        let (team, func) = (self.team, self.func);
        let blocks = team.blocks();
        if team.peers(func, pipeline, 0).len() as u32 == blocks {
            return self.below(number, blocks);
        }
        // A table of the masks of all ranks would not fit in a word: each bit is computed
        // separately.
        let groups: std::collections::BTreeSet<u32> = func
            .walk()
            .into_iter()
            .filter(|&o| func.ops[o].code == tessera_staged::StagedOp::Fill)
            .filter(|&o| tessera_staged::ops::team::pipeline_of(func, o) == Some(pipeline))
            .map(|o| team.of_fill(func, o).0)
            .collect();
        let rank = self.cta_rank();
        self.head(|me| {
            let asm = &mut me.asm;
            let differs = asm.int(Alu::Xor, Ty::B32, &[rank.into(), number.into()]);
            let mut any = None;
            for bits in groups {
                // Threads beyond the cluster size differ in higher bits.
                let others = Opnd::Int((!bits & 0x3ff).into());
                let rest = asm.int(Alu::And, Ty::B32, &[differs.into(), others]);
                let p = asm.setp(Cmp::Eq, Ty::U32, rest, Opnd::Int(0));
                any = Some(match any {
                    None => p,
                    Some(q) => {
                        let q: Reg = q;
                        asm.int(Alu::Or, Ty::Pred, &[p.into(), q.into()])
                    }
                });
            }
            any.unwrap_or_else(|| asm.setp(Cmp::Eq, Ty::U32, differs, Opnd::Int(0)))
        })
    }
}
