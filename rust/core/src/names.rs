//! The names of the fields that are looked for in requests, responses and items: a key is
//! compared with them once, while it is read, and by number from then on.

use crate::json::{FieldName, Raw};

macro_rules! names {
    ($($len:literal { $($text:literal $name:ident)+ })+) => {
        /// A field's name.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Name {
            /// One that nothing is wanted of.
            #[default]
            Other,
            $($(#[doc = concat!("`", $text, "`")] $name,)+)+
        }

        impl Name {
            fn of_text(text: &[u8]) -> Self {
                match text.len() {
                    $($len => {
                        $(
                            const { assert!($text.len() == $len) };
                            if text == $text.as_bytes() {
                                return Self::$name;
                            }
                        )+
                        Self::Other
                    })+
                    _ => Self::Other,
                }
            }
        }
    };
}

names! {
    2 { "id" Id }
    4 { "type" Type "role" Role "name" Name "text" Text }
    5 { "model" Model "usage" Usage "index" Index "input" Input "tools" Tools }
    6 { "output" Output "status" Status "reason" Reason "system" System }
    7 { "content" Content "choices" Choices "message" Message "call_id" CallId
        "summary" Summary "request" Request "dialect" Dialect }
    8 { "messages" Messages "function" Function "thinking" Thinking "logprobs" Logprobs
        "response" Response }
    9 { "arguments" Arguments "reasoning" Reasoning "model_ref" ModelRef }
    10 { "tool_calls" ToolCalls "started_at" StartedAt "latency_ms" LatencyMs }
    11 { "stop_reason" StopReason "annotations" Annotations "status_code" StatusCode
        "request_raw" RequestRaw }
    12 { "input_tokens" InputTokens "total_tokens" TotalTokens "completed_at" CompletedAt
        "response_raw" ResponseRaw "instructions" Instructions }
    13 { "finish_reason" FinishReason "output_tokens" OutputTokens
        "prompt_tokens" PromptTokens "cached_tokens" CachedTokens
        "model_call_id" ModelCallId }
    14 { "error_category" ErrorCategory }
    15 { "latency_ttft_ms" LatencyTtftMs "response_source" ResponseSource }
    16 { "reasoning_tokens" ReasoningTokens }
    17 { "reasoning_content" ReasoningContent "completion_tokens" CompletionTokens
        "client_session_id" ClientSessionId }
    18 { "incomplete_details" IncompleteDetails "upstream_attempted" UpstreamAttempted }
    19 { "cached_input_tokens" CachedInputTokens }
    20 { "input_tokens_details" InputTokensDetails
        "upstream_status_code" UpstreamStatusCode }
    21 { "prompt_tokens_details" PromptTokensDetails
        "output_tokens_details" OutputTokensDetails
        "local_response_reason" LocalResponseReason }
    23 { "cache_read_input_tokens" CacheReadInputTokens
        "prompt_cache_hit_tokens" PromptCacheHitTokens
        "reasoning_output_tokens" ReasoningOutputTokens }
    25 { "completion_tokens_details" CompletionTokensDetails }
    27 { "cache_creation_input_tokens" CacheCreationInputTokens }
}

impl FieldName for Name {
    fn of(text: &[u8]) -> Self {
        Self::of_text(text)
    }

    /// Members of a response that nothing below is wanted of: they may be large.
    #[inline]
    fn is_closed(self) -> bool {
        matches!(
            self,
            Self::Logprobs | Self::Input | Self::Arguments | Self::Annotations | Self::Tools
        )
    }
}

/// Whether two of an object's keys are the same.
pub fn repeat<'a>(keys: impl Iterator<Item = (Name, Raw<'a>)> + Clone) -> bool {
    let mut met = 0_u128;
    keys.clone().enumerate().any(|(at, (name, key))| {
        if name == Name::Other {
            let mut before = keys.clone().take(at);
            before.any(|(name, other)| name == Name::Other && key.is_same_string(other))
        } else {
            let before = met;
            met |= 1 << name as u32;
            met == before
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scanner;

    #[test]
    fn repeated_keys_are_found_however_they_are_escaped() {
        let repeats = |keys: &[&'static str]| {
            let keys = keys.iter().map(|key| {
                let text = key.trim_matches('"').as_bytes();
                (Name::of(text), Raw::new(key.as_bytes()))
            });
            repeat(keys)
        };
        assert!(!repeats(&["\"id\"", "\"x\"", "\"type\"", "\"y\""]));
        assert!(repeats(&["\"id\"", "\"x\"", "\"id\""]));
        assert!(repeats(&["\"id\"", "\"x\"", "\"\\u0078\""]));
    }

    #[test]
    fn a_name_is_known_however_it_is_escaped() {
        let name = |key: &[u8]| {
            let text = [b"{", key, b":0}"].concat();
            let mut found: Vec<Name> = Vec::new();
            let mut scanner = Scanner::new(&text);
            let scanned = scanner.object(|scanner, key| {
                found.push(scanner.name(key));
                scanner.value().map(|_| ())
            });
            scanned.unwrap();
            found[0]
        };
        assert_eq!(name(b"\"usage\""), Name::Usage);
        assert_eq!(name(b"\"us\\u0061ge\""), Name::Usage);
        assert_eq!(name(b"\"us\\u0061ga\""), Name::Other);
        assert_eq!(name(b"\"\""), Name::Other);
        assert_eq!(name(b"\"usag\\\\\""), Name::Other);
    }
}
