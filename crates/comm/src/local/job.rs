//! A collective at which all members have arrived: its parts, and how they are done.

use crate::piece::{checksum, copy, put, runs};
use crate::{GroupId, Kind, Request, desync};
use std::ops::Range;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};
use tessera_numerics::{ReduceOp, combine_arrays};

pub struct Job {
    /// Of each member.
    pub requests: Vec<Request>,
    /// By member, piece and part; empty where they are not taken.
    pub sums: Vec<Vec<Vec<u32>>>,
    pub members: Arc<[usize]>,
    pub group: GroupId,
    pub sequence: u64,
    /// Bytes of a part.
    pub part: usize,
}

/// Some bytes of a collective, in their order in a piece.
pub enum Work {
    /// Piece `piece` of all members, combined, to some.
    Combine { op: ReduceOp, piece: usize, bytes: Range<usize>, targets: Range<usize> },
    /// A piece of a member, to piece `place` of some.
    Copy { source: usize, piece: usize, bytes: Range<usize>, targets: Range<usize>, place: usize },
    /// Zeros, where nobody sends.
    Zero { target: usize, bytes: Range<usize> },
}

impl Job {
    /// What is to be done, in parts of about one size.
    pub fn parts(&self) -> Vec<Vec<Work>> {
        let n = self.requests.len();
        let first = &self.requests[0];
        let mut parts = Parts { of: self.part, all: Vec::new(), last: Vec::new(), size: 0 };
        match &first.call.kind {
            Kind::AllReduce(op) => parts.add(first.send[0].bytes(), n, |bytes| Work::Combine {
                op: *op,
                piece: 0,
                bytes,
                targets: 0..n,
            }),
            Kind::ReduceScatter(op) => {
                for (piece, block) in first.send.iter().enumerate() {
                    parts.add(block.bytes(), n, |bytes| Work::Combine {
                        op: *op,
                        piece,
                        bytes,
                        targets: piece..piece + 1,
                    });
                }
            }
            Kind::AllGather => {
                for (source, request) in self.requests.iter().enumerate() {
                    parts.add(request.send[0].bytes(), n, |bytes| Work::Copy {
                        source,
                        piece: 0,
                        bytes,
                        targets: 0..n,
                        place: source,
                    });
                }
            }
            Kind::AllToAll => {
                for (source, request) in self.requests.iter().enumerate() {
                    for (target, piece) in request.send.iter().enumerate() {
                        parts.add(piece.bytes(), 1, |bytes| Work::Copy {
                            source,
                            piece: target,
                            bytes,
                            targets: target..target + 1,
                            place: source,
                        });
                    }
                }
            }
            Kind::Broadcast { root } => {
                parts.add(self.requests[*root].send[0].bytes(), n, |bytes| Work::Copy {
                    source: *root,
                    piece: 0,
                    bytes,
                    targets: 0..n,
                    place: 0,
                });
            }
            Kind::Permute(pairs) => {
                for (target, request) in self.requests.iter().enumerate() {
                    let size = request.receive[0].bytes();
                    match pairs.iter().find(|(_, t)| *t == target) {
                        Some(&(source, _)) => parts.add(size, 1, |bytes| Work::Copy {
                            source,
                            piece: 0,
                            bytes,
                            targets: target..target + 1,
                            place: 0,
                        }),
                        None => parts.add(size, 1, |bytes| Work::Zero { target, bytes }),
                    }
                }
            }
            Kind::Barrier => {}
        }
        parts.end()
    }

    /// An error where bytes are not those that a member sent.
    fn verify(&self, member: usize, piece: usize, bytes: &Range<usize>) -> Result<(), Diagnostic> {
        let Some(known) = self.sums.get(member).and_then(|p| p.get(piece)) else { return Ok(()) };
        let request = &self.requests[member];
        let found = checksum(&request.from, &request.send[piece], bytes.clone());
        match known.get(bytes.start / self.part) {
            Some(sum) if *sum == found => Ok(()),
            _ => Err(desync::corrupted(self.members[member], &request.call)),
        }
    }

    /// Whether an earlier member receives into the same bytes, as ranks do that share memory.
    fn is_shared(&self, targets: &Range<usize>, target: usize, place: usize) -> bool {
        let of = |t: usize| (self.requests[t].to.address(), self.requests[t].receive[place]);
        targets.start < target && (targets.start..target).any(|t| of(t) == of(target))
    }

    pub fn perform(&self, work: &Work) -> Result<(), Diagnostic> {
        match work {
            Work::Combine { op, piece, bytes, targets } => {
                for member in 0..self.requests.len() {
                    self.verify(member, *piece, bytes)?;
                }
                self.combine(*op, *piece, bytes, targets)
            }
            Work::Copy { source, piece, bytes, targets, place } => {
                self.verify(*source, *piece, bytes)?;
                let from = &self.requests[*source];
                for target in targets.clone().filter(|&t| !self.is_shared(targets, t, *place)) {
                    let to = &self.requests[target];
                    let into = (&to.to, &to.receive[*place]);
                    copy((&from.from, &from.send[*piece]), into, bytes.clone());
                }
                Ok(())
            }
            Work::Zero { target, bytes } => {
                let to = &self.requests[*target];
                runs(&to.to, &to.receive[0], bytes.clone(), |address, len| {
                    // SAFETY: what a collective receives into is its own.
                    unsafe { std::ptr::write_bytes(address, 0, len) }
                });
                Ok(())
            }
        }
    }

    fn combine(
        &self,
        op: ReduceOp,
        piece: usize,
        bytes: &Range<usize>,
        targets: &Range<usize>,
    ) -> Result<(), Diagnostic> {
        let call = &self.requests[0].call;
        // Contributions in one run are read where they are, others from a copy.
        let copies: Vec<Option<Vec<u8>>> = self
            .requests
            .iter()
            .map(|r| {
                let piece = &r.send[piece];
                (piece.runs(bytes.start, bytes.end).count() > 1).then(|| {
                    let mut all = Vec::with_capacity(bytes.len());
                    runs(&r.from, piece, bytes.clone(), |address, len| {
                        // SAFETY: nothing writes what a collective sends.
                        all.extend_from_slice(unsafe { std::slice::from_raw_parts(address, len) });
                    });
                    all
                })
            })
            .collect();
        let values: Vec<&[u8]> = self
            .requests
            .iter()
            .zip(&copies)
            .map(|(r, copy)| match (copy, r.send[piece].runs(bytes.start, bytes.end).next()) {
                (Some(copy), _) => copy.as_slice(),
                // SAFETY: as above. In place only this work writes these bytes, after they are read.
                (None, Some((offset, len))) => unsafe {
                    std::slice::from_raw_parts(r.from.address().add(offset), len)
                },
                (None, None) => &[],
            })
            .collect();
        let mut out = vec![0; bytes.len()];
        if !combine_arrays(op, call.dtype, &values, &mut out) {
            let text = format!("expected contributions that `{}` combines, got {call}", op.name());
            let error = Diagnostic::new(Code::E_TYPE, text).at(call.at.clone());
            return Err(error.help("cast to the accumulation dtype first"));
        }
        for target in targets.clone().filter(|&t| !self.is_shared(targets, t, 0)) {
            let to = &self.requests[target];
            put(&out, &to.to, &to.receive[0], bytes.clone());
        }
        Ok(())
    }
}

/// Collects works until they are as large as a part.
struct Parts {
    of: usize,
    all: Vec<Vec<Work>>,
    last: Vec<Work>,
    size: usize,
}

impl Parts {
    /// Works over all bytes of a piece; `cost` is how often each byte is read or written.
    fn add(&mut self, bytes: usize, cost: usize, make: impl Fn(Range<usize>) -> Work) {
        for from in (0..bytes).step_by(self.of) {
            let to = bytes.min(from + self.of);
            self.last.push(make(from..to));
            self.size += (to - from) * cost;
            if self.size >= self.of {
                self.all.push(std::mem::take(&mut self.last));
                self.size = 0;
            }
        }
    }

    fn end(mut self) -> Vec<Vec<Work>> {
        if !self.last.is_empty() {
            self.all.push(self.last);
        }
        self.all
    }
}
