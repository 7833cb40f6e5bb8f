//! Where the chunks are cut makes no difference, on real bodies and on noise.

use super::{block, input, item, named, open, says, sse, stop};
use crate::stream::{Assembler, Dialect, assemble};
use proptest::prelude::*;
use serde_json::{Value, json};

fn bodies() -> Vec<(Dialect, String)> {
    let chunk = |delta: Value| json!({"id": "c", "choices": [{"index": 0, "delta": delta}]});
    let mut events = block(
        0,
        json!({"type": "thinking", "thinking": ""}),
        &[json!({"type": "thinking_delta", "thinking": "é😀"})],
    );
    events.extend(block(
        1,
        json!({"type": "tool_use", "id": "t", "name": "f", "input": {}}),
        &[input("{\"a\""), input(":1}")],
    ));
    events.push(stop());
    let chat = sse(&[
        chunk(json!({"role": "assistant", "content": "a\u{2028}😀"})),
        chunk(json!({"tool_calls": [open("t1", json!(0), "{}")]})),
        chunk(json!({"reasoning": "é"})),
    ]) + ": comment\r\n\r\ndata: [DONE]\n\n";
    let responses = named(&[
        json!({"type": "response.created", "response": {"id": "r", "output": []}}),
        item(0, says("m", "é😀")),
        json!({"type": "response.output_text.delta", "output_index": 1, "item_id": "n", "delta": "p"}),
        json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}),
    ]);
    let dialects = [
        (Dialect::Chat, chat),
        (Dialect::Messages, named(&events)),
        (Dialect::Responses, responses),
    ];
    dialects
        .into_iter()
        .flat_map(|(dialect, body)| {
            ["\n", "\r", "\r\n"].map(|end| (dialect, body.replace('\n', end)))
        })
        .collect()
}

#[test]
fn a_cut_at_any_byte_changes_nothing() {
    for (dialect, body) in bodies() {
        let body = body.as_bytes();
        let whole = assemble(Some(dialect), body, Some(200));
        assert_eq!(whole.error_category, None);
        for cut in 0..=body.len() {
            let mut assembler = Assembler::new(Some(dialect));
            let parts = [assembler.feed(&body[..cut]), assembler.feed(&body[cut..])];
            assert_eq!(
                parts.iter().filter(|part| part.first_token).count(),
                1,
                "cut at {cut}"
            );
            assert_eq!(
                parts
                    .iter()
                    .filter(|part| part.terminal_offset.is_some())
                    .count(),
                1,
                "cut at {cut}"
            );
            assert_eq!(assembler.finish(Some(200)), whole, "cut at {cut}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_in_any_cuts_give_strict_json_and_the_same(
        picks in proptest::collection::vec((0usize..9, any::<proptest::sample::Index>(), any::<proptest::sample::Index>(), any::<u8>()), 0..12),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..5),
        dialect in proptest::option::of(0usize..3),
    ) {
        // Slices of real bodies, shuffled, with a byte changed here and there.
        let bodies = bodies();
        let mut body = Vec::new();
        for (which, from, to, noise) in picks {
            let text = bodies[which].1.as_bytes();
            let (from, to) = (from.index(text.len()), to.index(text.len()));
            body.extend_from_slice(&text[from.min(to)..from.max(to)]);
            if noise < 16 {
                body.push(noise.wrapping_mul(17));
            }
        }
        let dialect = dialect.map(|at| [Dialect::Chat, Dialect::Messages, Dialect::Responses][at]);
        let whole = assemble(dialect, &body, None);
        if let Some(response) = &whole.response {
            prop_assert!(serde_json::from_slice::<Value>(&response.contiguous()).is_ok());
        }
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        at.sort_unstable();
        let mut assembler = Assembler::new(dialect);
        let mut from = 0;
        for cut in at {
            assembler.feed(&body[from..cut]);
            from = cut;
        }
        assembler.feed(&body[from..]);
        prop_assert_eq!(assembler.finish(None), whole);
    }
}
