//! Assembly text of users: one run of a text for one element, or for several that are packed into
//! registers of 32 bits.

use crate::asm::Asm;
use crate::inst::*;
use crate::scalar::Scalars;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Func, Level, Op};
use tessera_numerics::DType;
use tessera_tile::ops::asm::{AsmTarget, Piece, pack_of, pieces_of, registers, results_of};

/// A text with the dtypes of its values.
pub struct Text {
    pieces: Vec<Piece>,
    pub pack: usize,
    pub results: Vec<DType>,
    pub operands: Vec<DType>,
}

impl Text {
    pub fn new<L: Level>(func: &Func<L>, op: &Op<L>) -> Result<Self, Diagnostics> {
        let pieces = pieces_of(func, op).map_err(|why| {
            Diagnostic::new(Code::E_ARGUMENT, why.message).at(op.loc.clone()).help(why.help)
        })?;
        let dtypes = |values: &[tessera_ir::Value]| -> Vec<DType> {
            values.iter().map(|&v| func.ty(v).dtype()).collect()
        };
        Ok(Self {
            pieces,
            pack: pack_of(op),
            results: results_of(func, op).0,
            operands: dtypes(&op.operands),
        })
    }

    /// Registers of a dtype in one run of the text: how many, and their class.
    fn registers(&self, dtype: DType) -> (usize, Class) {
        let (n, bits) = registers(dtype, AsmTarget::Ptx, self.pack).unwrap_or((1, 32));
        let class = match bits {
            1 => Class::Pred,
            16 => Class::B16,
            32 => Class::B32,
            _ => Class::B64,
        };
        (n, class)
    }

    /// Elements that share a register.
    fn together(&self, dtype: DType) -> usize {
        self.pack / self.registers(dtype).0
    }

    /// One run. `elements` has, for each operand, `pack` values in carriers, and what comes back has
    /// them for each result. `when`: where it does not hold nothing runs, and results are zero.
    pub fn run(
        &self,
        s: &mut Scalars<'_>,
        elements: &[Vec<Reg>],
        when: Option<Reg>,
    ) -> Vec<Vec<Reg>> {
        let mut a = Vec::new();
        for (&dtype, xs) in self.operands.iter().zip(elements) {
            match self.together(dtype) {
                1 => a.extend(xs.iter().map(|&x| code(s, dtype, x))),
                n => a.extend(xs.chunks(n).map(|xs| s.encode_packed(dtype, xs))),
            }
        }
        let mut d: Vec<Vec<Reg>> = Vec::new();
        for &dtype in &self.results {
            let (n, class) = self.registers(dtype);
            d.push((0..n).map(|_| s.asm.reg(class)).collect());
        }
        emit(s.asm, self.pieces.clone(), d.concat(), a, when);
        let decoded = |(dtype, d): (&DType, Vec<Reg>)| -> Vec<Reg> {
            match self.together(*dtype) {
                1 => d.into_iter().map(|d| value(s, *dtype, d)).collect(),
                _ => d.into_iter().flat_map(|d| s.decode_packed(*dtype, d)).collect(),
            }
        };
        self.results.iter().zip(d).map(decoded).collect()
    }
}

/// The register that a text gets for a value in its carrier.
fn code(s: &mut Scalars<'_>, dtype: DType, x: Reg) -> Reg {
    if dtype == DType::Bool { x } else { s.encode(dtype, x) }
}

fn value(s: &mut Scalars<'_>, dtype: DType, d: Reg) -> Reg {
    if dtype == DType::Bool { d } else { s.decode(dtype, d) }
}

fn emit(asm: &mut Asm, pieces: Vec<Piece>, d: Vec<Reg>, a: Vec<Reg>, when: Option<Reg>) {
    let Some(p) = when else { return asm.emit(Inst::Text { pieces, d, a }) };
    for &d in &d {
        let ty = match d.class {
            Class::Pred => Ty::Pred,
            Class::B16 => Ty::B16,
            Class::B32 => Ty::B32,
            Class::B64 => Ty::B64,
        };
        asm.mov_to(ty, d, Opnd::Int(0));
    }
    let past = asm.label();
    asm.bra_if(p, false, past);
    asm.emit(Inst::Text { pieces, d, a });
    asm.place(past);
}
