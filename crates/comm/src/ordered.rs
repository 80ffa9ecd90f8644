//! Combinations on transports that only move bytes: `all_to_all` brings every contribution to a block to one member, which combines them in
//! the canonical order over the positions of the group; for `all_reduce` the blocks are gathered. A small `all_reduce` gathers whole contributions,
//! and every member combines all of them: one round of messages, and the same bits.

use crate::{Call, Kind, Memory, Piece, Request, Token, Transport};
use std::sync::{Arc, Mutex, PoisonError};
use tessera_diag::{Code, Diagnostic};
use tessera_numerics::{ReduceOp, combine_arrays};

/// The part of one rank in a combination. Where it has a collective to start yet ([`Combination::is_last`]), the rank starts no other in the
/// group: members start the collectives of a group in one order.
pub struct Combination {
    rank: usize,
    op: ReduceOp,
    request: Request,
    /// Elements of the block of each member, and this member.
    counts: Vec<u64>,
    member: usize,
    /// The contribution and the value, where they are not contiguous in the memory of the request.
    packed: Option<Vec<u8>>,
    /// What came from each member; then the combined block.
    scratch: Vec<u8>,
    token: Token,
    gathers: bool,
    /// Every member combines everything: `scratch` has the contributions of all.
    whole: bool,
}

/// Contributions of all members together, in bytes, that each member combines by itself.
const SMALL: u64 = 8 << 10;

impl Combination {
    pub fn start(
        transport: &dyn Transport,
        rank: usize,
        request: Request,
    ) -> Result<Self, Diagnostic> {
        let members = transport.members(request.group);
        let member = members.iter().position(|r| *r == rank);
        let refused = |text: &str| {
            let error = Diagnostic::new(Code::E_ARGUMENT, text).at(request.call.at.clone());
            error.help("this is a fault of the program that calls the transport: report it")
        };
        let member = member.ok_or_else(|| refused("expected a rank of the group"))?;
        let op = request.call.kind.combines();
        let op = op.ok_or_else(|| refused("expected a collective that combines"))?;
        request.check(members.len(), member)?;
        if let Some(queue) = [request.from, request.to].iter().find_map(Memory::queue) {
            let text = format!("expected arrays in host memory, got one on {}", queue.device);
            let error = Diagnostic::new(Code::E_UNSUPPORTED, text).at(request.call.at.clone());
            return Err(error.help("copy it to the host: it combines what transports move there"));
        }
        let n = members.len() as u64;
        let (item, all) = (request.call.dtype.bytes(), request.call.count());
        let is_all = request.call.kind == Kind::AllReduce(op);
        let whole = is_all && n > 1 && all.saturating_mul(n * item as u64) <= SMALL;
        let block = all.div_ceil(n);
        let counts: Vec<u64> = match is_all {
            _ if whole => vec![all; n as usize],
            true => (0..n).map(|m| all.min((m + 1) * block) - all.min(m * block)).collect(),
            false => request.call.counts.clone(),
        };
        // Cut in blocks, rows of a strided piece would be cut too.
        let strided = |p: &Piece| p.rows > 1 && p.len != p.stride;
        let packed = (is_all && (strided(&request.send[0]) || strided(&request.receive[0])))
            .then(|| read(&request.from, &request.send[0]));
        let own = counts[member] as usize * item;
        let mut scratch = spare(own * members.len());
        let mut made = Self {
            rank,
            op,
            member,
            packed,
            scratch: Vec::new(),
            token: Token { group: request.group, member, sequence: 0 },
            gathers: false,
            whole,
            counts,
            request,
        };
        let (from, base) = made.contribution();
        let send: Arc<[Piece]> = match is_all {
            true if whole => [Piece::contiguous(base, own)].into(),
            true => made.blocks(base).into(),
            false => made.request.send.clone(),
        };
        // SAFETY: `scratch` stays where it is, and belongs to the collective while `poll` has not seen it complete.
        let to = unsafe { Memory::host(scratch.as_mut_ptr(), scratch.len()) };
        let receive = (0..members.len()).map(|m| Piece::contiguous(m * own, own)).collect();
        let call = Arc::new(
            made.call(if whole { Kind::AllGather } else { Kind::AllToAll }, made.counts.clone()),
        );
        let moved = Request { group: made.request.group, call, from, send, to, receive };
        made.token = transport.start(rank, moved)?;
        made.scratch = scratch;
        Ok(made)
    }

    /// What it waits for.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether it has no collective to start yet.
    pub fn is_last(&self) -> bool {
        self.gathers || self.whole || self.request.call.kind == Kind::ReduceScatter(self.op)
    }

    fn call(&self, kind: Kind, counts: Vec<u64>) -> Call {
        let of = &self.request.call;
        Call { kind, dtype: of.dtype, counts, at: of.at.clone(), part_of: Some(of.clone()) }
    }

    /// The memory with the contribution, and where it begins.
    fn contribution(&mut self) -> (Memory, usize) {
        match &mut self.packed {
            // SAFETY: as of `scratch`.
            Some(bytes) => (unsafe { Memory::host(bytes.as_mut_ptr(), bytes.len()) }, 0),
            None => (self.request.from, self.request.send[0].offset),
        }
    }

    /// The block of each member in contiguous elements.
    fn blocks(&self, base: usize) -> Vec<Piece> {
        let item = self.request.call.dtype.bytes();
        let mut at = base;
        let each = self.counts.iter().map(|&n| {
            let piece = Piece::contiguous(at, n as usize * item);
            at += piece.len;
            piece
        });
        each.collect()
    }

    /// Whether it is complete for this rank; goes on as far as it can.
    pub fn poll(&mut self, transport: &dyn Transport) -> Result<bool, Diagnostic> {
        if !transport.test(self.token)? {
            return Ok(false);
        }
        if self.gathers {
            if let Some(packed) = &self.packed {
                write(packed, &self.request.to, &self.request.receive[0]);
            }
            return Ok(true);
        }
        let item = self.request.call.dtype.bytes();
        let own = self.counts[self.member] as usize * item;
        let mut block = spare(own);
        if own > 0 {
            let values: Vec<&[u8]> = self.scratch.chunks(own).collect();
            if !combine_arrays(self.op, self.request.call.dtype, &values, &mut block) {
                let call = &self.request.call;
                let text = format!(
                    "expected contributions that `{}` combines, got {call}",
                    self.op.name()
                );
                let error = Diagnostic::new(Code::E_TYPE, text).at(call.at.clone());
                return Err(error.help("cast to the accumulation dtype first"));
            }
        }
        if self.whole || self.request.call.kind == Kind::ReduceScatter(self.op) {
            write(&block, &self.request.to, &self.request.receive[0]);
            keep(block);
            return Ok(true);
        }
        keep(std::mem::replace(&mut self.scratch, block));
        self.gathers = true;
        // SAFETY: as in `start`.
        let from = unsafe { Memory::host(self.scratch.as_mut_ptr(), own) };
        let (to, base) = match &self.packed {
            Some(_) => self.contribution(),
            None => (self.request.to, self.request.receive[0].offset),
        };
        let call = Arc::new(self.call(Kind::AllGather, self.counts.clone()));
        let (group, receive) = (self.request.group, self.blocks(base).into());
        let send = [Piece::contiguous(0, own)].into();
        let gathered = Request { group, call, from, send, to, receive };
        self.token = transport.start(self.rank, gathered)?;
        self.poll(transport)
    }
}

impl Drop for Combination {
    fn drop(&mut self) {
        keep(std::mem::take(&mut self.scratch));
    }
}

/// Memory of combinations that are over. The system would clear new memory, which takes about as long as a combination.
static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
/// Smaller memory is not kept, nor more than so much together.
const KEPT: usize = 256 << 10;
const MOST_KEPT: usize = 64 << 20;

/// `bytes` of any values.
fn spare(bytes: usize) -> Vec<u8> {
    if bytes >= KEPT {
        let mut all = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |v: &Vec<u8>| (bytes..=bytes + bytes / 4).contains(&v.len());
        let found = all.iter().position(fits);
        if let Some(mut found) = found.map(|at| all.swap_remove(at)) {
            found.truncate(bytes);
            return found;
        }
    }
    vec![0; bytes]
}

fn keep(bytes: Vec<u8>) {
    if bytes.len() < KEPT || bytes.len() > MOST_KEPT {
        return;
    }
    let mut all = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(bytes);
    while all.iter().map(Vec::len).sum::<usize>() > MOST_KEPT {
        all.remove(0);
    }
}

/// The bytes of a piece.
fn read(memory: &Memory, piece: &Piece) -> Vec<u8> {
    let mut out = Vec::with_capacity(piece.bytes());
    for (offset, len) in piece.runs(0, piece.bytes()) {
        // SAFETY: the piece is inside the memory, which the request has.
        out.extend_from_slice(unsafe {
            std::slice::from_raw_parts(memory.address().add(offset), len)
        });
    }
    out
}

/// Writes contiguous bytes to a piece of the same size.
fn write(mut bytes: &[u8], memory: &Memory, piece: &Piece) {
    for (offset, len) in piece.runs(0, piece.bytes()) {
        let (here, rest) = bytes.split_at(len.min(bytes.len()));
        bytes = rest;
        // SAFETY: as above, and what is received into is the request's alone.
        unsafe {
            std::ptr::copy_nonoverlapping(here.as_ptr(), memory.address().add(offset), here.len());
        }
    }
}
