//! Packing what the fold makes, without rendering it first.

use super::plan::Run;
use super::sketch::{Hole, Sketch, What};
use super::{HEAD, MIDDLE};
use crate::intern::Interner;
use crate::value::Value;

/// Appends `record` in its packed form.
///
/// Distinct values of the rollout are looked at once each, lists of them by their ids.
pub fn pack_value(record: &Value<'_>, shared: &Interner<'_>, out: &mut Vec<u8>) {
    let mut sketch = Sketch::new(shared);
    sketch.value(record);
    sketch.link();
    sketch.plan.number();
    out.reserve(sketch.size());
    out.extend_from_slice(HEAD);
    sketch.plan.write_parts(out);
    out.extend_from_slice(MIDDLE);
    let mut writer = Writer {
        part_of: sketch.parts_by_id(),
        written: vec![None; sketch.lists.len()],
        sketch: &sketch,
    };
    writer.record(out);
    out.push(b'}');
}

/// Fills the holes of a sketch.
struct Writer<'s, 'v, 'a> {
    sketch: &'s Sketch<'v, 'a>,
    /// The place among the parts of each shared id that is one.
    part_of: Vec<u32>,
    /// Where each list stands in the output, once it does: what extends it begins like it.
    written: Vec<Option<Written>>,
}

/// A list's elements but for the last run, and that.
#[derive(Clone, Copy)]
struct Written {
    start: usize,
    end: usize,
    run: Run,
}

impl Writer<'_, '_, '_> {
    fn record(&mut self, out: &mut Vec<u8>) {
        let sketch = self.sketch;
        let mut run = Run::default();
        let mut pos = 0;
        for Hole { at, what } in &sketch.holes {
            let gap = &sketch.text[pos..*at];
            pos = *at;
            let part = match what {
                What::Distinct(distinct) => sketch.plan.part(*distinct),
                What::List(_) => None,
            };
            if let Some(part) = part
                && gap == b","
                && run.extend(part)
            {
                continue;
            }
            run.flush(out);
            out.extend_from_slice(gap);
            match (part, what) {
                (Some(part), _) => run = Run::new(part),
                (None, What::Distinct(distinct)) => sketch.plan.write_inside(*distinct, out),
                (None, What::List(list)) => self.list(*list, out),
            }
        }
        run.flush(out);
        out.extend_from_slice(&sketch.text[pos..]);
    }

    fn list(&mut self, number: u32, out: &mut Vec<u8>) {
        let list = &self.sketch.lists[number as usize];
        let start = out.len() + 1;
        out.push(b'[');
        let mut run = Run::default();
        let mut rest = list.ids;
        let beginnings = [Some(number), list.extends];
        for beginning in beginnings.into_iter().flatten() {
            let beginning = beginning as usize;
            if let Some(written) = self.written[beginning] {
                out.extend_from_within(written.start..written.end);
                run = written.run;
                rest = &list.ids[self.sketch.lists[beginning].ids.len()..];
                break;
            }
        }
        for id in rest {
            // Every one of them was forced to be a part.
            let part = self.part_of[id.0 as usize];
            if !run.extend(part) {
                if run.flush(out) {
                    out.push(b',');
                }
                run = Run::new(part);
            }
        }
        let end = out.len();
        self.written[number as usize] = Some(Written { start, end, run });
        run.flush(out);
        out.push(b']');
    }
}
