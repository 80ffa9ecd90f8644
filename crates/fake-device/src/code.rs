//! Code on the fake device: Tile IR, run by the interpreter.

use crate::memory::Use;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::Privilege;
use tessera_numerics::{DType, Profile, Scalar};
use tessera_target::frame::{DOMAIN, Frame, GRID, LANES, ParamKind};
use tessera_target::{ArgValue, Artifact, Backend, BufferArg, CompileOptions, LaunchArgs};
use tessera_tile::TileFunc;

pub struct Kernel {
    pub func: TileFunc,
    frame: Frame,
    code: Box<dyn Artifact>,
}

/// An array among the words of a launch, with what the kernel does to it.
struct Seen {
    buffer: BufferArg,
    privilege: Privilege,
}

impl Kernel {
    /// Loads an image: the text of one function.
    pub fn load(image: &[u8]) -> Result<Self, Diagnostics> {
        let refused = |why: &str| {
            let message = format!("the image is no code of this device: {why}");
            Diagnostics::from(Diagnostic::new(Code::E_TARGET_CODEGEN, message))
        };
        let text = std::str::from_utf8(image).map_err(|_| refused("it is no text"))?;
        let func = tessera_tile::parse(text).map_err(|e| refused(&e.to_string()))?;
        let frame = Frame::new(&func)?;
        let code = tessera_interp::Interp.compile(&func, &CompileOptions::new(Profile::Strict))?;
        Ok(Self { func, frame, code })
    }

    /// The launch that the words are of.
    fn args(&self, words: &[u64]) -> (LaunchArgs, Vec<Seen>) {
        let (mut params, mut seen) = (Vec::new(), Vec::new());
        for param in &self.frame.params {
            match &param.kind {
                ParamKind::Scalar(dtype) => {
                    params.push(ArgValue::Scalar(scalar(dtype.carrier(), words[param.word])));
                }
                ParamKind::Array { dims, elem, privilege, .. } => {
                    let rank = dims.len();
                    let list = |first: usize| -> Vec<i64> {
                        words[first..first + rank].iter().map(|&w| w as i64).collect()
                    };
                    let buffer = BufferArg {
                        data: words[param.word] as *mut u8,
                        dims: list(param.word + 1),
                        strides: list(param.word + 1 + rank),
                        dtype: elem.storage,
                        writable: privilege.writes(),
                    };
                    seen.push(Seen { buffer: buffer.clone(), privilege: *privilege });
                    params.push(ArgValue::Buffer(buffer));
                }
            }
        }
        let symbols = self.frame.symbols.iter().enumerate();
        let first = self.frame.first_symbol;
        let dims: BTreeMap<String, i64> =
            symbols.map(|(i, name)| (name.clone(), words[first + i] as i64)).collect();
        let extent = |axis: usize| {
            let word = self.frame.domain(axis);
            if word < self.frame.words() { words[word] as i64 } else { 1 }
        };
        let args = LaunchArgs {
            params,
            dims,
            grid: std::array::from_fn(|axis| words[GRID + axis] as i64),
            domain: [words[DOMAIN] as i64, extent(1), extent(2)],
            lanes: words[LANES] as i64,
        };
        (args, seen)
    }

    /// How many words a launch has.
    pub fn words(&self) -> usize {
        self.frame.words()
    }

    /// What a launch with these words reads and writes.
    pub fn uses(&self, words: &[u64]) -> Vec<Use> {
        let (_, seen) = self.args(words);
        let one = |seen: &Seen| {
            let (low, high) = reach(&seen.buffer);
            let address = (seen.buffer.data as u64).wrapping_add_signed(low);
            let writes = seen.privilege.writes();
            let what = if writes { "a kernel's write" } else { "a kernel's read" };
            Use { what, address, bytes: (high - low) as u64, writes }
        };
        seen.iter().map(one).filter(|u| u.bytes > 0).collect()
    }

    /// Runs it. `place` gives the host's pointer for bytes of the device.
    pub fn run<E: From<Diagnostics>>(
        &self,
        words: &[u64],
        mut place: impl FnMut(u64, u64) -> Result<*mut u8, E>,
    ) -> Result<(), E> {
        let (mut args, _) = self.args(words);
        for arg in &mut args.params {
            if let ArgValue::Buffer(buffer) = arg {
                let (low, high) = reach(buffer);
                if high == low {
                    continue;
                }
                let from = (buffer.data as u64).wrapping_add_signed(low);
                let first = place(from, (high - low) as u64)?;
                buffer.data = first.wrapping_offset(-low as isize);
            }
        }
        Ok(self.code.launch(&args)?)
    }
}

/// Bytes from the first element to the lowest one, and to the end of the highest.
pub fn reach(view: &BufferArg) -> (i64, i64) {
    if view.dims.iter().any(|&n| n <= 0) {
        return (0, 0);
    }
    let (mut low, mut high) = (0, view.dtype.bytes() as i64);
    for (&n, &stride) in view.dims.iter().zip(&view.strides) {
        let far = (n - 1) * stride;
        if far < 0 { low += far } else { high += far }
    }
    (low, high)
}

/// A scalar of a carrier from its bits.
fn scalar(carrier: DType, bits: u64) -> Scalar {
    match carrier {
        DType::F32 => Scalar::F32(f32::from_bits(bits as u32)),
        DType::F64 => Scalar::F64(f64::from_bits(bits)),
        DType::I32 => Scalar::I32(bits as u32 as i32),
        DType::I64 => Scalar::I64(bits as i64),
        DType::U32 => Scalar::U32(bits as u32),
        DType::Bool => Scalar::Bool(bits != 0),
        _ => Scalar::U64(bits),
    }
}
