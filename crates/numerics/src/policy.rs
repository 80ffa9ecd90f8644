//! A storage type with its numeric policy: `bf16 @accum(f32) @loss_scale(128.0)`.

use crate::dtype::DType;
use crate::modes::{Rounding, ScaleMode};
use crate::policy_error::PolicyError;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// What sums are kept in.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Accum {
    /// In this type, at its full precision.
    Type(DType),
    /// In the tensor cores' unpromoted f32: at least 13 fraction bits between promotions
    /// (LANGUAGE 13, class `fast`). Written `fp32_fast`.
    Fp32Fast,
}

impl Accum {
    /// The type of the accumulator.
    pub const fn dtype(self) -> DType {
        match self {
            Accum::Type(dt) => dt,
            Accum::Fp32Fast => DType::F32,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Accum::Type(dt) => dt.name(),
            Accum::Fp32Fast => "fp32_fast",
        }
    }
}

/// One `@` item.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum PolicyItem {
    Accum(Accum),
    Compute(DType),
    Round(Rounding),
    Saturate(bool),
    Scale(ScaleMode),
    LossScale(f64),
    Packed,
}

impl PolicyItem {
    /// The kind of item; one type takes each kind once. `stochastic_round` is of kind `round`.
    pub const fn kind(self) -> &'static str {
        match self {
            PolicyItem::Accum(_) => "accum",
            PolicyItem::Compute(_) => "compute",
            PolicyItem::Round(_) => "round",
            PolicyItem::Saturate(_) => "saturate",
            PolicyItem::Scale(_) => "scale",
            PolicyItem::LossScale(_) => "loss_scale",
            PolicyItem::Packed => "packed",
        }
    }
}

impl fmt::Display for PolicyItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyItem::Accum(a) => write!(f, "@accum({})", a.name()),
            PolicyItem::Compute(dt) => write!(f, "@compute({dt})"),
            PolicyItem::Round(Rounding::Stochastic) => f.write_str("@stochastic_round"),
            PolicyItem::Round(r) => write!(f, "@round(\"{r}\")"),
            PolicyItem::Saturate(true) => f.write_str("@saturate"),
            PolicyItem::Saturate(false) => f.write_str("@saturate(false)"),
            PolicyItem::Scale(m) => write!(f, "@scale(\"{m}\")"),
            // `{:?}` keeps the `.0` and prints the shortest digits that read back as the same value.
            PolicyItem::LossScale(x) => write!(f, "@loss_scale({x:?})"),
            PolicyItem::Packed => f.write_str("@packed"),
        }
    }
}

/// A storage type and what its policy says; `None` leaves a choice to the default.
///
/// Equality, order and hash go by bits, as cache keys need.
#[derive(Copy, Clone, Debug)]
pub struct NumType {
    pub storage: DType,
    pub accum: Option<Accum>,
    pub compute: Option<DType>,
    pub round: Option<Rounding>,
    pub saturate: Option<bool>,
    pub scale: Option<ScaleMode>,
    pub loss_scale: Option<f64>,
    /// Two 4-bit elements a byte, low index in the low nibble.
    pub packed: bool,
}

impl NumType {
    /// A type with no policy.
    pub const fn plain(storage: DType) -> NumType {
        NumType {
            storage,
            accum: None,
            compute: None,
            round: None,
            saturate: None,
            scale: None,
            loss_scale: None,
            packed: false,
        }
    }

    pub fn is_plain(&self) -> bool {
        *self == NumType::plain(self.storage)
    }

    /// This type with one more item, checked as in text: what `dtype @ item` does.
    pub fn with(mut self, item: PolicyItem) -> Result<NumType, PolicyError> {
        let fresh = match item {
            PolicyItem::Accum(a) => set(&mut self.accum, check_accum(a)?),
            PolicyItem::Compute(dt) => set(&mut self.compute, check_compute(dt)?),
            PolicyItem::Round(r) => set(&mut self.round, r),
            PolicyItem::Saturate(s) => set(&mut self.saturate, s),
            PolicyItem::Scale(m) => set(&mut self.scale, m),
            PolicyItem::LossScale(x) => set(&mut self.loss_scale, check_loss_scale(x)?),
            PolicyItem::Packed => {
                if self.storage.bits() != 4 {
                    let expected = "a 4-bit type (i4 or fp4_e2m1)";
                    return Err(PolicyError::bad("packed", expected, self.storage.name()));
                }
                !std::mem::replace(&mut self.packed, true)
            }
        };
        if fresh { Ok(self) } else { Err(PolicyError::Duplicate { item: item.kind() }) }
    }

    /// The items that are set, in the one order they are printed in.
    pub fn items(&self) -> impl Iterator<Item = PolicyItem> {
        [
            self.accum.map(PolicyItem::Accum),
            self.compute.map(PolicyItem::Compute),
            self.round.map(PolicyItem::Round),
            self.saturate.map(PolicyItem::Saturate),
            self.scale.map(PolicyItem::Scale),
            self.loss_scale.map(PolicyItem::LossScale),
            self.packed.then_some(PolicyItem::Packed),
        ]
        .into_iter()
        .flatten()
    }

    /// The type arithmetic on loaded values is done in.
    pub fn compute_dtype(&self) -> DType {
        self.compute.unwrap_or(self.storage.compute())
    }

    /// What sums are kept in: f32 for floats up to 32 bits unless the policy says otherwise, else the
    /// compute type.
    pub fn accumulator(&self) -> Accum {
        self.accum.unwrap_or(Accum::Type(self.storage.compute()))
    }

    /// How a store rounds.
    pub fn rounding(&self) -> Rounding {
        self.round.unwrap_or(Rounding::Rne)
    }

    /// Whether a store saturates: by default fp8, fp6 and fp4 do.
    pub fn saturates(&self) -> bool {
        self.saturate.unwrap_or(self.storage.saturates_by_default())
    }

    #[allow(clippy::type_complexity)] // The tuple is a sort key and never leaves this file.
    fn key(
        &self,
    ) -> (
        DType,
        Option<Accum>,
        Option<DType>,
        Option<Rounding>,
        Option<bool>,
        Option<ScaleMode>,
        Option<u64>,
        bool,
    ) {
        let loss = self.loss_scale.map(f64::to_bits);
        (
            self.storage,
            self.accum,
            self.compute,
            self.round,
            self.saturate,
            self.scale,
            loss,
            self.packed,
        )
    }
}

/// Fills an empty slot; false when it was taken.
fn set<T>(slot: &mut Option<T>, value: T) -> bool {
    slot.replace(value).is_none()
}

fn check_accum(a: Accum) -> Result<Accum, PolicyError> {
    let dt = a.dtype();
    let wide = dt.bits() >= 32 || matches!(dt, DType::F16 | DType::BF16);
    if wide && dt != DType::Tf32 {
        return Ok(a);
    }
    let expected =
        "an accumulator type (f16, bf16, f32, f64, fp32_fast, or an integer of 32 or 64 bits)";
    Err(PolicyError::bad("accum", expected, dt.name()))
}

fn check_compute(dt: DType) -> Result<DType, PolicyError> {
    if matches!(dt, DType::Bool | DType::E8M0) {
        return Err(PolicyError::bad("compute", "a number type", dt.name()));
    }
    Ok(dt)
}

fn check_loss_scale(x: f64) -> Result<f64, PolicyError> {
    if x.is_finite() && x > 0.0 {
        return Ok(x);
    }
    Err(PolicyError::bad("loss_scale", "a finite number above zero", &format!("{x:?}")))
}

impl From<DType> for NumType {
    fn from(storage: DType) -> NumType {
        NumType::plain(storage)
    }
}

impl fmt::Display for NumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.storage.name())?;
        self.items().try_for_each(|item| write!(f, " {item}"))
    }
}

impl PartialEq for NumType {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for NumType {}

impl PartialOrd for NumType {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NumType {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for NumType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
