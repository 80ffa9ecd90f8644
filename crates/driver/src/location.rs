//! Where the arrays of a call are: all of them in one place, which says what it runs on.

use crate::args::Place;
use crate::bind::Slot;
use crate::params::{Param, Params};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::device::DeviceId;

/// Where a call's data is. A call without arrays is one on the host.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Location {
    #[default]
    Host,
    Device(DeviceId),
}

impl Location {
    /// The device, the host among them.
    pub fn id(self) -> DeviceId {
        match self {
            Location::Host => DeviceId::HOST,
            Location::Device(device) => device,
        }
    }
}

/// The one place of all arrays; where they are in several, each is named.
pub fn location(params: &Params, slots: &[Slot]) -> Result<Location, Diagnostics> {
    let mut found: Option<(&Param, &Place)> = None;
    for (param, slot) in params.items.iter().zip(slots) {
        let Slot::Array(array) = slot else { continue };
        match found {
            None => found = Some((param, &array.place)),
            Some((_, place)) if *place == array.place => {}
            Some((first, _)) => return Err(mixed(params, slots, first).into()),
        }
    }
    Ok(match found {
        Some((_, Place::Device(device))) => Location::Device(*device),
        Some((_, Place::Host | Place::Other(_))) | None => Location::Host,
    })
}

fn mixed(params: &Params, slots: &[Slot], first: &Param) -> Diagnostic {
    let mut error =
        Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, String::new()).at(first.loc.clone());
    let mut reported: Vec<String> = Vec::new();
    for (param, slot) in params.items.iter().zip(slots) {
        let Slot::Array(array) = slot else { continue };
        reported.push(format!("`{}` {}", param.name, array.place));
        if param.name != first.name {
            error = error.label(param.loc.clone(), array.place.to_string());
        }
    }
    error.message = format!("expected all arrays in one place, got {}", reported.join(", "));
    error.help("copy arrays with what their library has for that, or with `ts.array(x, device=\"cuda:0\")`")
}

/// The first array of a call, for errors about where they all are.
pub fn first_array<'a>(params: &'a Params, slots: &[Slot]) -> Option<&'a Param> {
    let mut rows = params.items.iter().zip(slots);
    rows.find(|(_, slot)| matches!(slot, Slot::Array(_))).map(|(param, _)| param)
}
