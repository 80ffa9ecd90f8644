//! Sorts keys with their places digit by digit, from the lowest: a word of 32 bits is a digit and
//! the position that its element has so far, so that the network compares words (`min`, `max`), and
//! elements with equal digits keep their order. Between two digits each thread fetches what belongs
//! to the elements that it holds now.

use super::Select;
use super::sort::{Entry, Keys, Sort};
use crate::inst::*;
use std::sync::Arc;
use tessera_layout::Layout;
use tessera_numerics::DType;

const WORD: u32 = 32;

/// A digit of the keys: its lowest bit, and how many it has.
#[derive(Copy, Clone)]
struct Digit {
    from: u32,
    bits: u32,
}

impl Sort {
    /// How many digits a key has.
    pub fn digits(&self) -> u32 {
        self.key_bits().div_ceil(WORD - self.network.len())
    }

    fn digit(&self, index: u32) -> Digit {
        let most = WORD - self.network.len();
        let width = self.key_type().bits();
        let from = width - self.key_bits() + index * most;
        Digit { from, bits: most.min(width - from) }
    }
}

impl Select<'_> {
    /// Where the elements of a sorted axis were.
    pub fn sort_by_digits(&mut self, s: &Sort, from: &Arc<Layout>, xs: &[Reg]) -> Vec<Reg> {
        let to = self.layout(self.func.ops[s.id].results[0]);
        let mut keys = self.tied_keys(s, from, xs, true);
        let mut places: Option<Vec<Reg>> = None;
        let last = s.digits() - 1;
        for index in 0..=last {
            let digit = s.digit(index);
            let held = if index == 0 { from } else { &to };
            // A word that has room for the place too saves fetching it.
            let room = places
                .as_ref()
                .filter(|_| index == last)
                .filter(|_| digit.bits + 2 * s.network.len() <= WORD);
            let mut words: Vec<Entry> = Vec::new();
            for (reg, &key) in keys.iter().enumerate() {
                let c = self.coords(held, reg as u32)[s.axis];
                let mut low = self.coord_value(c);
                let mut low_bits = s.network.len();
                if let Some(places) = room {
                    let by = Opnd::Int(1 << low_bits);
                    let place = places[reg];
                    low = self.asm.int(Alu::MadLo, Ty::U32, &[low.into(), by, place.into()]);
                    low_bits *= 2;
                }
                words.push(vec![self.digit_word(s, key, digit, low, low_bits)]);
            }
            let whole = room.is_some();
            self.run_network(s, Keys::One(Ty::U32), &mut words);
            let mask = Opnd::Int(s.positions() - 1);
            let at: Vec<Reg> = words
                .iter()
                .map(|word| self.asm.int(Alu::And, Ty::B32, &[word[0].into(), mask]))
                .collect();
            if index < last {
                keys = self.fetched(s, (held, &keys), &at);
            }
            places = Some(match places {
                Some(places) if !whole => self.taken(s, (held, &places), DType::U32, &at),
                _ => at,
            });
        }
        places.unwrap_or_default()
    }

    /// The word that holds a digit of a key above `low`.
    fn digit_word(&mut self, s: &Sort, key: Reg, digit: Digit, low: Reg, low_bits: u32) -> Reg {
        let Digit { from, bits } = digit;
        // The highest bits of a key are there already.
        if s.key_type() == Ty::U32 && from + bits == WORD {
            let above = if from < low_bits {
                let shifted = self.shifted(key, from);
                self.asm.int(Alu::Shl, Ty::B32, &[shifted.into(), Opnd::Int(low_bits.into())])
            } else {
                let mask = Opnd::Int(i64::from(u32::MAX << from));
                self.asm.int(Alu::And, Ty::B32, &[key.into(), mask])
            };
            return self.asm.int(Alu::Or, Ty::B32, &[above.into(), low.into()]);
        }
        let key = match key.class {
            Class::B64 => {
                let down = Opnd::Int(from.into());
                let key = match from {
                    0 => key,
                    _ => self.asm.int(Alu::Shr, Ty::U64, &[key.into(), down]),
                };
                self.asm.unpack(Class::B32, 2, key)[0]
            }
            _ => self.shifted(key, from),
        };
        // What is above the digit leaves the word.
        let up = Opnd::Int((WORD - bits).into());
        let above = self.asm.int(Alu::Shl, Ty::B32, &[key.into(), up]);
        let down = WORD - bits - low_bits;
        let above = self.shifted(above, down);
        self.asm.int(Alu::Or, Ty::B32, &[above.into(), low.into()])
    }

    fn shifted(&mut self, x: Reg, down: u32) -> Reg {
        match down {
            0 => x,
            _ => self.asm.int(Alu::Shr, Ty::U32, &[x.into(), Opnd::Int(down.into())]),
        }
    }

    /// The keys of the elements at these positions; padding stays the last.
    fn fetched(&mut self, s: &Sort, keys: (&Arc<Layout>, &[Reg]), at: &[Reg]) -> Vec<Reg> {
        let to = self.layout(self.func.ops[s.id].results[0]);
        let ty = s.key_type();
        let dtype = if ty == Ty::U64 { DType::U64 } else { DType::U32 };
        let taken = self.taken(s, keys, dtype, at);
        let mut out = Vec::new();
        for (reg, key) in taken.into_iter().enumerate() {
            let held = self.held(&to, s.axis, reg);
            out.push(self.or_last(ty, held, key));
        }
        out
    }
}
